"""Which parts of changed files decide a check's result, for a run whose user protects the tests."""
