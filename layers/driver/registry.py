"""The workflows that an engine knows, by name, and how what they gave is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import cast

from ...core.kind import is_a
from ...services.workflow import AnyWorkflow, Workflow

__all__ = ["as_workflow", "by_name", "read_json", "reader"]


def by_name(workflows: Iterable[AnyWorkflow]) -> dict[str, AnyWorkflow]:
    """The workflows by their names; a ValueError if two of them have one, a TypeError if these are no workflows."""
    if not is_a(workflows, Iterable):
        name = getattr(workflows, "name", None)
        instead = f", not a {type(workflows).__name__}" if name is None else f": write workflows=[{name}]"
        raise TypeError(f"workflows= is a list of workflows{instead}")
    known: dict[str, AnyWorkflow] = {}
    for workflow in workflows:
        named = as_workflow(workflow)
        if known.setdefault(named.name, named) is not named:
            raise ValueError(f"two workflows are named {named.name!r}; give one of them another name")
    return known


def as_workflow(workflow: object) -> AnyWorkflow:
    """The workflow, or a TypeError if it is none."""
    if not isinstance(workflow, Workflow):
        raise TypeError(f"{workflow!r} is no workflow: decorate its function with @workflow")
    return cast(AnyWorkflow, workflow)  # of whichever arguments and result


def reader(workflow: AnyWorkflow) -> Callable[[bytes], object]:
    """How the recorded result of the workflow is read."""
    return lambda data: workflow.result.decode(data, f"the recorded result of the workflow {workflow.name}")


def read_json(data: bytes) -> object:
    """How a result is read whose workflow is not known here."""
    return json.loads(data)
