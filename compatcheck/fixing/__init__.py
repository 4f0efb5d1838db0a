"""The smallest change of releases and settings after which nothing fails any more, found and written into the files."""
