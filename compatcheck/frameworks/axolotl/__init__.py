"""axolotl: its YAML files and `axolotl train`."""
