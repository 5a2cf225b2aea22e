"""Git for a workspace: reads the user's repository, makes a private one for the agent, and imports commits."""
