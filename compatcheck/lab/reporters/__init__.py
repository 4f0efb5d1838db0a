"""What the commands of the laboratory print: probes, confirmations, bisections, sweeps and traced estimates."""
