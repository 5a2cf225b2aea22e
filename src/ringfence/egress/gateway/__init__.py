"""The model gateway: processes inside call a model's API without a key; the host adds the key, limits and records."""
