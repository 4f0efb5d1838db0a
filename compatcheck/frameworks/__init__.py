"""One module per framework that reads configuration files into documents."""
