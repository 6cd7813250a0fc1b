from __future__ import annotations

import io
import sys

import pytest

from cli.batch_wait import batch_progress, look_seconds, wait_for_batch
from cli.client import ApiError, Client
from models.settings import Settings
from tests.cli.fake_api import BATCH_ID, FakeApi, batch_object


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("waited", "look"), [(0.0, 0.5), (40.0, 2.0), (86400.0, 5.0)])
def test_looks_become_rarer_but_never_rare(waited: float, look: float) -> None:
    assert look_seconds(waited) == look


def test_an_api_that_stays_away_is_given_up(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.batch_wait._MIN_LOOK_SECONDS", 0.001)
    monkeypatch.setattr("cli.batch_wait.PATIENCE_SECONDS", 0.0)
    api.looks = [503]
    settings = Settings.model_validate({"api_url": api.url, "api_key": "key"})

    with Client(settings) as client, pytest.raises(ApiError) as given_up:
        wait_for_batch(client, BATCH_ID)

    assert given_up.value.status_code == 503


def test_on_a_terminal_it_is_shown_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    counts = {"total": 2000, "completed": 1200, "failed": 3}

    with batch_progress() as show:
        show(batch_object("validating"))
        show(batch_object(request_counts=counts, eta_seconds=90.0))

    assert "in progress" in terminal.getvalue()
    assert "1,203 of 2,000 done, 3 failed · 2 min left" in terminal.getvalue()


def test_in_a_pipe_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with batch_progress() as show:
        show(batch_object())

    assert capsys.readouterr() == ("", "")
