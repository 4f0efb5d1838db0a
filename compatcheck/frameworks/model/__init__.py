"""A model's own files, such as `config.json`, found on disk or in the local cache of the hub."""
