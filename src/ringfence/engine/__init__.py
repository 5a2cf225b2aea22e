"""Durable execution: workflows that survive whoever runs them."""

from ringfence.engine.base import (
    Context,
    Engine,
    Json,
    StepFailed,
    Workflow,
    WorkflowState,
    WorkflowStatus,
)
from ringfence.engine.registry import open_engine

__all__ = [
    "Context",
    "Engine",
    "Json",
    "StepFailed",
    "Workflow",
    "WorkflowState",
    "WorkflowStatus",
    "open_engine",
]
