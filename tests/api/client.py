"""A client of the app in this process."""

from __future__ import annotations

import hashlib
from typing import Any, cast

from flask import Flask
from werkzeug.test import TestResponse

from api.services import services
from models.database import now
from models.ids import new_id
from models.tables.job import JobStatus, Lane
from models.tables.project import ApiKey, JobCount, Project
from tests.api.worker import MODEL


def prompt(text: str = "Once", **more: Any) -> dict[str, Any]:
    """A valid submission of one completion."""
    return {"body": {"model": MODEL, "prompt": text}, **more}


class Client:
    """Sends requests with one key."""

    def __init__(self, app: Flask, key: str) -> None:
        self.app = app
        self.headers = {"Authorization": f"Bearer {key}"}

    @classmethod
    def of_new_project(cls, app: Flask, name: str) -> Client:
        """Make a project with a key, and a client for it."""
        secret = f"key-of-{name}"
        with services(app).database.transaction() as session:
            at = now(session)
            project = Project(id=new_id("proj"), name=name, created_at=at)
            session.add(project)
            session.flush()
            session.add_all(
                JobCount(project_id=project.id, lane=lane, status=status)
                for lane in Lane
                for status in JobStatus
            )
            digest = hashlib.sha256(secret.encode()).hexdigest()
            key = {"id": new_id("key"), "name": name, "hash": digest, "hint": "…", "created_at": at}
            session.add(ApiKey(project_id=project.id, **key))
        return cls(app, secret)

    @property
    def project_id(self) -> str:
        """The project whose key it has."""
        return services(self.app).keys.authenticate(self.headers["Authorization"].partition(" ")[2])

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.app.test_client().get(path, headers={**self.headers, **headers})

    def post(self, path: str, body: Any = None, **headers: str) -> TestResponse:
        return self.app.test_client().post(path, json=body, headers={**self.headers, **headers})

    def submit(self, body: Any = None, **headers: str) -> dict[str, Any]:
        """Hand in a job or a list that must be accepted, and return it."""
        answer = self.post("/v1/jobs", prompt() if body is None else body, **headers)
        assert answer.status_code == 202, answer.text
        return cast(dict[str, Any], answer.get_json())

    def job(self, job_id: str, query: str = "") -> dict[str, Any]:
        """Look up a job that must be there."""
        answer = self.get(f"/v1/jobs/{job_id}{query}")
        assert answer.status_code == 200, answer.text
        return cast(dict[str, Any], answer.get_json())
