"""Git for a workspace: the user's repository is read, an agent's own one is made, commits are fetched."""
