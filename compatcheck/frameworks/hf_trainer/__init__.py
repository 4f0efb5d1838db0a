"""The HF Trainer: `TrainingArguments` in files and on command lines, which other programs build upon."""
