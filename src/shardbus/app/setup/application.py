"""Executes the steps of a plan, one after the other, until one fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardbus.app.cli.failures import CommandError, Refused
from shardbus.app.setup.step import SetupPlan, Step


@dataclass(frozen=True, slots=True)
class Applied:
    """The executed steps, and why the next one failed; None when all succeeded."""

    done: list[Step]
    failure: CommandError | None = None


class Blocked(Refused):
    """The file asks for something that changes cannot achieve."""


def check_possible(plan: SetupPlan) -> None:
    """Raises Blocked when a step is blocked: then nothing is done at all."""
    blocked = plan.blocked()
    if blocked:
        told = "; ".join(f"{_where(step)}: {step.reason}" for step in blocked)
        raise Blocked(f"nothing was changed, because this cannot be done: {told}")


def apply_plan(plan: SetupPlan, tell: Callable[[Step], None]) -> Applied:
    """Execute the plan; `tell` is called with each step after it."""
    check_possible(plan)
    done: list[Step] = []
    todo = plan.todo()
    for step in todo:
        assert step.act is not None
        try:
            step.act()
        except CommandError as error:
            return Applied(done, _failure(step, len(done), len(todo), error))
        done.append(step)
        tell(step)
    return Applied(done)


def _failure(step: Step, done: int, all_steps: int, error: CommandError) -> CommandError:
    told = f"{_where(step)}: {error} ({done} of {all_steps} changes were made before this one)"
    return type(error)(told)


def _where(step: Step) -> str:
    named = f"{step.kind} {step.name}"
    return f"{step.place}: {named}" if step.place else named
