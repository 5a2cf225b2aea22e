"""Tools made of Python functions.

Such a function runs in the host's process, *outside* the sandbox, and can do everything that this process can do.
"""

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, get_type_hints, overload

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic_core import to_json

from ringfence.errors import ConfigurationError, UsageError
from ringfence.events import JSONObject
from ringfence.tool.base import Tool, ToolContext, ToolResult, ToolSpec

DEFAULT_TIMEOUT_S = 120.0

Function = Callable[..., Any]


class FunctionTool(Tool):
    """A tool that calls a Python function. `tool` creates it.

    Args:
        function: Its type hints define the schema, and its docstring is the description. A parameter annotated
            `ToolContext` is not part of the schema and receives the context of the call.
        name: The tool's name. Default: the function's name.
        read_only: Whether the tool may run concurrently with other read-only calls.
        timeout_s: A call that takes longer ends with an error. The thread of a function that is not async
            cannot be killed: it runs until the function returns, and its result is discarded.

    Raises:
        UsageError: A hint or the docstring is missing, or a hint has no JSON Schema.
    """

    has_valid_schema = True  # pydantic generates it

    def __init__(
        self, function: Function, *, name: str | None = None, read_only: bool = False, timeout_s: float
    ) -> None:
        self._function = function
        self._timeout_s = timeout_s
        self.is_read_only = read_only
        self._name = str(name or getattr(function, "__name__", ""))
        self._context_parameter: str | None = None
        self._fields: dict[str, str] = {}
        self._input = self._input_model()
        self.spec = ToolSpec(name=self._name, description=self._description(), input_schema=self._schema())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as without the decorator."""
        return self._function(*args, **kwargs)

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Call the function with validated arguments."""
        try:
            parsed = self._input.model_validate(arguments)
        except ValidationError as error:
            return ToolResult(f"the input does not fit {self._name!r}: {_problems(error)}", is_error=True)
        values = {parameter: getattr(parsed, field) for field, parameter in self._fields.items()}
        if self._context_parameter is not None:
            values[self._context_parameter] = context
        with anyio.move_on_after(self._timeout_s):
            return _as_result(await self._invoke(values))
        return ToolResult(f"{self._name} took longer than {self._timeout_s:g} s", is_error=True)

    async def _invoke(self, values: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**values)
        return await anyio.to_thread.run_sync(partial(self._function, **values), abandon_on_cancel=True)

    def _description(self) -> str:
        text = inspect.getdoc(self._function)
        if not text:
            raise UsageError(
                f"tool {self._name!r} has no docstring; write one that says when to use the tool"
            )
        return text

    def _input_model(self) -> type[BaseModel]:
        try:
            hints = get_type_hints(self._function, include_extras=True)
        except NameError as error:
            raise UsageError(f"a type hint of tool {self._name!r} cannot be resolved: {error}") from error
        fields: dict[str, Any] = {}
        for parameter in inspect.signature(self._function).parameters.values():
            hint = hints.get(parameter.name)
            if hint is ToolContext:
                self._context_parameter = parameter.name
                continue
            self._check(parameter, hint)
            # Fields are numbered, because one named `copy` or `json` would hide a method of the model.
            field = f"p{len(fields)}"
            self._fields[field] = parameter.name
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[field] = (hint, Field(default, alias=parameter.name))
        try:
            return create_model(f"{self._name}_input", __config__=ConfigDict(extra="forbid"), **fields)
        except PydanticUserError as error:
            raise UsageError(f"a type hint of tool {self._name!r} cannot be used: {error}") from error

    def _check(self, parameter: inspect.Parameter, hint: Any) -> None:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(
                f"tool {self._name!r} takes {parameter}, which has no name in JSON; use named parameters"
            )
        if hint is None:
            raise UsageError(f"parameter {parameter.name!r} of tool {self._name!r} has no type hint; add one")

    def _schema(self) -> JSONObject:
        try:
            schema = self._input.model_json_schema()
        except PydanticUserError as error:
            raise UsageError(f"a type hint of tool {self._name!r} has no JSON Schema: {error}") from error
        schema.pop("title", None)
        for field in schema.get("properties", {}).values():
            field.pop("title", None)
        return {"type": "object", "properties": {}, **schema}


@overload
def tool(function: Function, /) -> FunctionTool: ...
@overload
def tool(
    *, name: str | None = None, read_only: bool = False, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Callable[[Function], FunctionTool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    read_only: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Decorate a function to make it a tool: `@tool` or `@tool(read_only=True)`. See `FunctionTool`."""
    if function is not None:
        return FunctionTool(function, timeout_s=DEFAULT_TIMEOUT_S)
    return lambda decorated: FunctionTool(decorated, name=name, read_only=read_only, timeout_s=timeout_s)


def import_tool(reference: str) -> FunctionTool:
    """Import the tool that `module:function` names; a plain function is made a tool.

    Modules are imported from Python's installation, never from the current directory, where an agent may have
    written files.

    Raises:
        ConfigurationError: There is no such module or function.
        UsageError: The function cannot be a tool.
    """
    module_name, _, name = reference.partition(":")
    try:
        found = getattr(import_module(module_name), name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may also call `sys.exit`
        raise ConfigurationError(
            f"tools.python names {reference!r}, which cannot be imported ({type(error).__name__}: {error}); "
            "install its package in ringfence's environment, or correct it"
        ) from error
    return found if isinstance(found, FunctionTool) else tool(found)


def _problems(error: ValidationError) -> str:
    return "; ".join(
        f"$.{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )


def _as_result(value: Any) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(value)
    return ToolResult("[no result]" if value is None else to_json(value, inf_nan_mode="strings").decode())
