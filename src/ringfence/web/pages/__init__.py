"""Handlers of the pages, in one module for each noun: they read from the API and execute the actions of buttons."""
