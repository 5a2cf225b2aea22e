"""Configuration: layers, files, units, and where things live on disk."""
