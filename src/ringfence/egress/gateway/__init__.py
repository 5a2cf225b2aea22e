"""The model gateway: processes inside ask a model's API without a key; the host adds it, counts, bounds and records."""
