"""The pages, a module for each noun: what they read from the API, and what their buttons do."""
