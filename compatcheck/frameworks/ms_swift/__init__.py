"""ms-swift: its files, `swift sft` and `megatron sft`."""
