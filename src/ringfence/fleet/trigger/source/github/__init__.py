"""A work source of issues in a repository on GitHub, or on a server with GitHub's API."""

from ringfence.fleet.trigger.source.github.source import GitHubSource, GitHubSourceConfig

__all__ = ["GitHubSource", "GitHubSourceConfig"]
