from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from models.faults import read_faults


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str | None = None


@pytest.mark.timeout(60)
def test_any_number_of_faults_is_read_in_no_more_than_its_time() -> None:
    """One by one against each other, these would take hours."""
    unknown = {f"k{number}": 1 for number in range(50_000)}

    with pytest.raises(ValidationError) as raised:
        Shape.model_validate(unknown)

    assert [fault.param for fault in read_faults(raised.value)] == list(unknown)
