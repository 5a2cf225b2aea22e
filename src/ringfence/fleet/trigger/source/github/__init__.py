"""Work as issues of a repository on GitHub, or what speaks like it."""

from ringfence.fleet.trigger.source.github.source import GitHubSource, GitHubSourceConfig

__all__ = ["GitHubSource", "GitHubSourceConfig"]
