"""The commands about the configuration: values, trust, policy and secrets."""
