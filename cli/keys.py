"""`headrace keys`: API keys, made and revoked straight in the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cli.job_text import table
from cli.json_output import AsJson, print_json
from cli.setting_flags import Flags, setting_flags
from models.errors import HeadraceError
from models.settings import load_settings

if TYPE_CHECKING:
    from models.keys import KeyRing

keys = typer.Typer(help="Make, list and revoke API keys.")

_PLACES = ("data_dir", "database_url")


class KeyNotFound(HeadraceError):
    """No key has this id."""

    code = "key_not_found"


@keys.command("create")
@setting_flags(*_PLACES)
def create(
    *,
    name: Annotated[str, typer.Option(help="What the key is for.")] = "key",
    as_json: AsJson = False,
    flags: Flags,
) -> None:
    """Make a key. Its secret is shown this once and kept nowhere."""
    with _key_ring(flags) as ring:
        key = ring.create(name)
    if as_json:
        print_json({"object": "api_key", "id": key.id, "name": name, "secret": key.secret})
    else:
        typer.echo(key.secret)
        typer.echo(f"{key.id} is its id; the secret above will not be shown again.", err=True)


@keys.command("ls")
@setting_flags(*_PLACES)
def ls(*, as_json: AsJson = False, flags: Flags) -> None:
    """List the keys, revoked ones included, without their secrets."""
    with _key_ring(flags) as ring:
        found = ring.all()
    if as_json:
        data = [
            {
                "object": "api_key",
                "id": key.id,
                "name": key.name,
                "hint": key.hint,
                "created_at": key.created_at.timestamp(),
                "revoked_at": key.revoked_at.timestamp() if key.revoked_at else None,
            }
            for key in found
        ]
        print_json({"object": "list", "data": data})
        return
    rows = [
        (
            key.id,
            key.name,
            key.hint,
            key.created_at.isoformat(timespec="seconds"),
            key.revoked_at.isoformat(timespec="seconds") if key.revoked_at else "-",
        )
        for key in found
    ]
    typer.echo(table([("id", "name", "secret", "created", "revoked"), *rows]))


@keys.command("revoke")
@setting_flags(*_PLACES)
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="key_….")],
    *,
    as_json: AsJson = False,
    flags: Flags,
) -> None:
    """Make a key useless from now on."""
    with _key_ring(flags) as ring:
        if not ring.revoke(key_id):
            raise KeyNotFound(f"no key has the id {key_id}; `headrace keys ls` lists them")
    if as_json:
        print_json({"object": "api_key", "id": key_id, "revoked": True})
    else:
        typer.echo(f"{key_id} revoked")


@contextmanager
def _key_ring(flags: Flags) -> Iterator[KeyRing]:
    # Imported here because SQLAlchemy takes half a second, which the client commands need not pay.
    from models.database import Database
    from models.keys import KeyRing
    from models.migrate import require_migrated

    with closing(Database(load_settings(**flags).sql_url)) as database:
        require_migrated(database)
        yield KeyRing(database)
