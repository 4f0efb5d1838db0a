"""Files of conda and pixi: environments, lists of packages and locks."""
