"""Value types, and the one reader of each syntax; nothing here knows a program or a rule."""
