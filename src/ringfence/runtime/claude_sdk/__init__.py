"""The Claude Agent SDK on the host, its `claude` inside the fence. Needs the extra `ringfence[claude-sdk]`."""

from ringfence.runtime.claude_sdk.runtime import ClaudeSdkRuntime, check_host, check_sdk

__all__ = ["ClaudeSdkRuntime", "check_host", "check_sdk"]
