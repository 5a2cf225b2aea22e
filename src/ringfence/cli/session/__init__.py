"""The commands about sessions of agents."""
