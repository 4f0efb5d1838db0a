"""Python script."""
