"""The typed names that rules, configurations, ``--set`` and facts files share.

One row per name: ``name | type | unit or allowed values | meaning``; values of the unit ``program`` are those of ``rules/_programs``. Types are ``bool``, ``int``, ``float``, ``str``,
``bytes`` (a non-negative integer), ``dtype``, ``version``, ``set`` (of strings). ``int`` and ``bytes`` are not negative; ``int>=1``
has another minimum. A type that ends in ``?`` also allows an
explicit ``None`` ("there is none"), which differs from unknown. To add a name, add a row; ``compatcheck rules lint`` checks
that rules use only these.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from compatcheck.core.facts import TRAITS

_TABLE = """
runtime.python | version | | interpreter version
runtime.torch_cuda | version? | | CUDA version torch was built for; None for a CPU or ROCm build
runtime.torch_build | str | cpu, cuda, rocm, xpu | what torch was built for
runtime.nvcc | version? | | version of the CUDA compiler on the machine, which need not be torch's CUDA
runtime.cudnn | version | | cuDNN version torch loads
runtime.nccl | version | | NCCL version torch loads
runtime.cublas | version | | cuBLAS version torch loads
runtime.triton | version | | triton version
runtime.cxx11_abi | bool | | whether torch was built with the C++11 ABI
runtime.cuda_compat | version? | | CUDA release of the forward-compatibility libraries (cuda-compat) the process loads; None for none
runtime.driver_required | str | | driver releases on which the container starts (NVIDIA_REQUIRE_CUDA), as a range
hardware.gpu | str | | catalogue name of the device
hardware.compute_capability | float? | | 9.0 for Hopper; None where torch is built for no CUDA device
hardware.multiprocessors | int>=1 | | streaming multiprocessors of one device
hardware.memory_bytes | bytes>=1 | | memory of one device
hardware.gpus_per_node | int>=1 | | devices per node
hardware.nodes | int>=1 | | nodes of the job
hardware.world_size | int>=1 | | ranks of the job
hardware.single_rank | bool | | one rank is the whole job: nothing is shared out or sent
hardware.driver | version | | NVIDIA driver version
hardware.driver_cuda | version | | newest CUDA version the driver supports, as nvidia-smi prints it
hardware.host_memory_bytes | bytes>=1 | | main memory of one node
hardware.shm_bytes | bytes | | size of /dev/shm
hardware.nvlink | bool | | devices of a node joined by NVLink or NVSwitch
allocator.expandable_segments | bool | | requested in either allocator variable
allocator.max_split_size_mb | int? | MiB | largest block the allocator splits
allocator.garbage_collection_threshold | float? | fraction | share of memory above which cached blocks are reclaimed
environment.duplicated | set | | distributions with two sets of metadata
environment.mismatched | set | | distributions whose metadata and version file disagree
environment.contradictory | set | | distributions whose requirements no release satisfies
environment.built_for_another_torch | set | | distributions whose compiled code was built for another torch than the one there
environment.pip_over_conda | set | | distributions that pip wrote over conda's
configuration.unread | set | | words and files of the configuration that were not read and may set any key
configuration.conflicts | set | | facts that two inputs of equal rank state differently
configuration.refused | set | | facts that a DeepSpeed file states otherwise than the arguments of its trainer, or their defaults: it does not start
estimate.verdict | str | fits, marginal, does_not_fit, unknown, cannot_start | what the estimate of this very run came to; no input states it
estimate.needed_bytes | bytes | | what it needs on one device at its peak, known regressions included
estimate.limit_bytes | bytes | | what one device has
model.name | str | | name or path as the configuration writes it
model.model_type | str | | model_type of config.json
model.architecture | str | | first of architectures in config.json
model.parameters | int | | all parameters
model.parameters_in_blocks | int | | parameters inside the repeated (checkpointed) blocks
model.trainable_parameters | int | | parameters that receive gradients
model.expert_parameters | int | | parameters inside mixture-of-experts experts
model.expert_parameters_per_layer | int | | expert parameters of the largest layer
model.embedding_parameters | int | | input embedding
model.lm_head_parameters | int | | output projection; 0 when tied to the embedding
model.vision_parameters | int | | vision and audio towers with their projectors
model.hidden_size | int>=1 | | width of the residual stream
model.intermediate_size | int | | width of the MLP
model.gated_mlp | bool | | the MLP has a gate beside its first matrix (SwiGLU, GeGLU)
model.hidden_act | str | | activation of the MLP, as transformers names it
model.moe_intermediate_size | int | | width of one expert
model.num_hidden_layers | int>=1 | | transformer blocks of the language model
model.num_attention_heads | int>=1 | | query heads
model.num_key_value_heads | int>=1 | | key and value heads
model.head_dim | int>=1 | | width of one head
model.vocab_size | int>=1 | | rows of the output projection
model.max_position_embeddings | int | | longest position the model was built for
model.sliding_window | int? | tokens | local attention window; None when attention is global
model.tie_word_embeddings | bool | | output projection shares the embedding
model.attn_implementation | str | eager, sdpa, flash_attention_2, flash_attention_3, flex_attention | attention kernel family
model.supports_sdpa | bool | | this release has an sdpa path for this model type
model.experts_implementation | str | eager, grouped_mm, batched_mm, loop | how mixture-of-experts layers compute
model.num_experts | int | | experts per layer
model.num_experts_per_token | int | | experts each token is routed to
model.has_conv3d | bool | | the model has a Conv3d (patch embedding of video models)
model.load_dtype | dtype | | dtype the weights are loaded in
model.stored_dtype | dtype | | dtype the model's own file states
model.quantization | str? | int8, nf4, fp4, gptq, awq, fp8, mxfp4, aqlm, hqq, eetq, torchao | weight quantisation of the base model
model.use_cache | bool | | KV cache kept in forward
model.output_attentions | bool | | attention weights are returned
model.output_hidden_states | bool | | all hidden states are returned
model.trust_remote_code | bool | | the model class comes from the hub repository
model.device_map | str? | | device_map given to from_pretrained
program.code | str | distribution | whose trainers or workers run: verl for its forks; by default its own
program.runs_transformers | bool | | the model's forward is code of transformers
program.computes_loss | str | model, program | the model from labels it is given, or the program from logits
program.keeps_graph | bool | | a backward pass follows the model's forwards, which keep activations for it
program.passes_labels | bool | | labels are handed to the model
program.computes_entropy | str | always, asked, never | whether every forward of the policy computes its entropy
program.skips_unlabelled_logits | bool | | logits are computed for positions with a label alone
program.drops_outputs | bool | | outputs of the model, but for the loss, are dropped before backward
program.collects_predictions | bool | | evaluation with metrics keeps the logits of all batches on the device
program.use_cache | bool | | the trainer lets the model make a KV cache while it trains
program.takes_default_optimizer | bool | | an optimizer that nobody names is the default of TrainingArguments
program.takes_default_reentrant | bool | | the variant of checkpointing that nobody names is that of transformers
program.quantises_experts | bool | | fused experts are quantised, too, while a model is loaded
program.converts_outputs | bool | | 16-bit outputs of the model are cast to float32 under mixed precision
program.accumulates_without_sync | bool | | all micro batches of a step but the last run under no_sync
program.heeds_sync_each_batch | bool | | sync_each_batch has an effect
program.wraps_adapters_apart | bool | | FSDP has adapters in units of their own
program.load_dtype | dtype | | dtype a model is loaded in where nobody states one
program.upcasts_unquantised | bool | | what is not quantised becomes float32 beside a quantised base
program.adapter_dtype | dtype | | dtype it casts adapters to
program.frozen_dtype | dtype | | dtype models are loaded in that only run forward
program.names_attention | bool | | it names an attention implementation where its configuration does not
program.attn_implementation | str | | attention where neither the configuration nor a release tells
program.gradient_checkpointing | bool | | checkpointing where neither the configuration nor a release tells
program.distributed_optimizer | bool | | Megatron's optimizer states are split where nobody says
program.tensor_parallel | bool | | it can split matrices over ranks
program.splits_sequences | bool | | ranks that split matrices split norms along the sequence where nobody says
program.adapters | bool | | it can train adapters
program.runs_trl_trainers | bool | | preference and policy trainers are TRL's, or keep a reference as those do
program.adapters_off_is_reference | bool | | with adapters the policy without them is its own reference
program.reference_offloads_with_policy | bool | | a reference is sharded and offloaded as the policy is
program.reference_by_script | bool | | one of its scripts keeps a reference and another has computed its log-probabilities
program.moves_idle_state | bool | | offloaded state leaves the device only while another role works, and is there at work
program.sleeps_while_idle | bool | | optimizer states can be taken off the device while another role works
program.roles_share_process | bool | | all roles of a device share a process, and with it CUDA context and allocator
program.separates_roles | bool | | roles can have devices of their own
program.frozen_on_host | bool | | models that only run forward are on the host between forwards, whatever their keys say
program.frozen_under_deepspeed | bool | | models that only run forward are in an engine of DeepSpeed, at stage 0 too
program.engine_shares_process | bool | | the engine runs in the trainer's process
program.engine_elsewhere_is_server | bool | | an engine on other devices is a server started by itself
program.engine_share_of_free | bool | | the engine's share is one of what is free once weights are loaded, and for KV alone
program.engine_always_sleeps | bool | | the engine sleeps between rollouts, whatever free_cache_engine says
program.lowers_engine_share | bool | | a large share of the device is lowered when all models share devices
program.policy_at_rollout | str | kept, after_sync, before_cache, before_weights | when an offloaded policy leaves the device: never, with its weights handed over, before the KV pool is made, before the engine's weights are
program.passes_max_num_seqs | bool | | it gives the engine a number of concurrent sequences
program.batches_count_prompts | bool | | micro batches count prompts over all ranks
program.batches_by_tokens | bool | | batches can be filled by tokens
program.asks_retriever | bool | | every run asks a retriever
training.framework | str | program | the program that runs the training loop
training.trainer | str | causal_lm, sft, dpo, grpo, ppo, rloo, kto, orpo, cpo, reward, prm, gkd, online_dpo, xpo, nash_md, bco, alignprop, ddpo, seq2seq, pretrain, reinforce | the training algorithm
training.sharding | str | none, ddp, zero, fsdp, megatron | how state is spread over ranks
training.fsdp_version | int? | 1, 2 | FSDP generation; None when FSDP does not shard the state
training.fsdp_sharding_strategy | str | full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2 | FSDP1 strategy
training.fsdp_reshard_after_forward | bool | | parameters are freed between forward and backward
training.fsdp_cpu_ram_efficient_loading | bool | | only rank 0 loads weights
training.fsdp_use_orig_params | bool | | FSDP1 keeps original parameters
training.fsdp_limit_all_gathers | bool | | FSDP1 rate limiter
training.fsdp_sync_module_states | bool | | FSDP1 broadcasts rank 0's weights
training.fsdp_wraps_frozen_apart | bool | | frozen and trainable parameters are wrapped in different units
training.fsdp_state_dict_type | str | full_state_dict, sharded_state_dict, local_state_dict | how checkpoints are gathered
training.fsdp_offload_params | bool | | FSDP CPU offload
training.fsdp_activation_checkpointing | bool | | FSDP plugin's own checkpointing
training.hsdp_shard_size | int>=1 | ranks | ranks per shard group in a replicate × shard mesh
training.replicas | int>=1 | | groups of ranks that each hold the whole state: rows of a replicate × shard mesh, ranks of DDP
training.zero_stage | int | 0, 1, 2, 3 | DeepSpeed ZeRO stage
training.distributed_optimizer | bool | | Megatron splits optimizer states over data-parallel ranks
training.zero_init | bool | | the model is built under zero.Init
training.zero_hpz_partition_size | int>=1 | ranks | ZeRO++ secondary partition group
training.offload_optimizer | str? | cpu, nvme | where optimizer state lives when offloaded
training.offload_param | str? | cpu, nvme | where parameters live when offloaded
training.offload_optimizer_pin_memory | bool | | page-locked optimizer state
training.offload_param_pin_memory | bool | | page-locked parameters
training.offload_optimizer_pipeline_write | bool | | NVMe swapper overlaps writes
training.reduce_bucket_size | int | elements | gradient reduction bucket
training.allgather_bucket_size | int | elements | ZeRO-1/2 all-gather bucket
training.prefetch_bucket_size | int | elements | stage3_prefetch_bucket_size
training.param_persistence_threshold | int | elements | stage3_param_persistence_threshold
training.model_persistence_threshold | int | elements | stage3_model_persistence_threshold
training.max_live_parameters | int | elements | stage3_max_live_parameters
training.max_reuse_distance | int | elements | stage3_max_reuse_distance
training.module_granularity_threshold | int | elements | stage3_module_granularity_threshold
training.overlap_comm | bool | | communication overlaps backward
training.contiguous_gradients | bool | | gradients are copied to one buffer
training.memory_efficient_linear | bool | | ZeRO-3 replaces nn.Linear
training.gather_16bit_weights_on_save | bool | | stage3_gather_16bit_weights_on_model_save
training.deepcompile | bool | | DeepSpeed compile.deepcompile
training.torch_autocast | bool | | DeepSpeed torch_autocast
training.bf16_master_weights_and_grads | bool | | DeepSpeed keeps masters in bfloat16
training.moe_leaf_modules | set | | DeepSpeed leaf module classes
training.gradient_checkpointing | bool | | activations are recomputed in backward
training.checkpointing_policy | str | full, every_other_product, core_attention | what of a checkpointed block is computed again: all of it; all but attention and every other matrix product (torchtitan, selective by op); attention scores only (Megatron, selective)
training.use_reentrant | bool | | reentrant variant of activation checkpointing
training.activation_offloading | bool | | saved activations are moved to host memory
training.mixed_precision | str | no, fp16, bf16, fp8 | autocast mode
training.param_dtype | dtype | | dtype of the working parameters on the device
training.compute_dtype | dtype | | dtype of matrix products
training.reduce_dtype | dtype | | dtype gradients are reduced in
training.master_dtype | dtype? | | dtype of master weights; None when there are none
training.grad_accum_dtype | dtype | | DeepSpeed data_types.grad_accum_dtype; Megatron's gradient buffers
training.optimizer | str | adamw, adam, sgd, adafactor, lion, muon, adamw_8bit, paged_adamw_8bit, paged_adamw, adagrad, rmsprop, galore, lomo, schedule_free, apollo, cpu_adam, lamb, stable_adamw, ademamix, grokadamw, onebit_adam, onebit_lamb, zero_one_adam, muadam, muadamw, musgd | optimizer family
training.optimizer_implementation | str | foreach, fused, for_loop | kernel family of torch's optimizer step
training.optimizer_in_backward | bool | | each gradient is applied in backward and given back at once
training.micro_batch_size | int>=1 | sequences | sequences per device and forward pass
training.micro_batch_is_global | bool | | the micro batch key counts sequences over all ranks
training.micro_batch_tokens | int>=1 | tokens | tokens per device and forward pass, where batches are cut by length (verl use_dynamic_bsz)
training.eval_batch_size | int>=1 | sequences | sequences per device in evaluation
training.gradient_accumulation_steps | int>=1 | | forward and backward passes per optimizer step
training.global_batch_size | int>=1 | sequences | sequences per optimizer step
training.sequence_length | int>=1 | tokens | longest sequence after truncation
training.max_prompt_length | int>=1 | tokens | longest prompt
training.max_start_length | int>=1 | tokens | Search-R1: first prompt of a dialogue, before searches and answers are appended
training.colocated_with | str | actor, critic | role whose devices this role shares
training.sleeps_while_idle | bool | | optimizer states leave the device while another role works (OpenRLHF deepspeed_enable_sleep)
training.max_response_length | int>=1 | tokens | longest completion
training.packing | bool | | several samples share one sequence
training.padding_free | bool | | batches are flattened, without padding or mask
training.sync_each_batch | bool | | gradients are reduced after every micro batch
training.gradient_as_bucket_view | bool | | DDP gradients are views into its buckets
training.tensor_parallel | int>=1 | | tensor-parallel ranks
training.sequence_parallel | bool | | tensor-parallel ranks split norms and residual stream along the sequence
training.pipeline_parallel | int>=1 | | pipeline stages
training.context_parallel | int>=1 | | context- or sequence-parallel ranks
training.expert_parallel | int>=1 | | expert-parallel ranks
training.expert_tensor_parallel | int>=1 | | tensor-parallel ranks inside of one expert
training.peft | str? | lora, dora, qlora, adalora, ia3, prefix_tuning, prompt_tuning, vera, oft, boft, freeze | adapter method; None for full fine-tuning
training.lora_rank | int | | r
training.lora_dropout | float | | dropout in front of the adapter
training.lora_target_modules | set | | modules that get an adapter; ``all-linear``
training.lora_target_parameters | set | | parameters that get an adapter directly
training.lora_modules_to_save | set | | modules trained in full beside the adapter
training.autocast_adapter_dtype | bool | | peft casts adapter weights to float32
training.lora_kernels | bool | | fused kernels run the adapted layers in place of peft's forward
training.loss_implementation | str | cross_entropy, chunked, fused_linear | how logits become a loss
training.loss_type | str | | loss_type as the trainer names it
training.use_liger_kernel | bool | | Liger kernels replace modules
training.compile | bool | | torch.compile
training.full_determinism | bool | | deterministic kernels are forced
training.eval_accumulation_steps | int>=1? | steps | evaluation batches kept on the device
training.prediction_loss_only | bool | | evaluation keeps no logits
training.compute_metrics | bool | | the trainer computes metrics from predictions
training.eval_samples | int | sequences | size of the evaluation set
training.empty_cache_steps | int>=1? | steps | torch_empty_cache_steps
training.average_tokens_across_devices | bool | | token counts are summed over ranks
training.keep_fp32_outputs | bool | | accelerate casts model outputs to float32
training.precompute_ref_log_probs | bool | | reference log-probabilities are computed before training
training.reference_model | bool | | a frozen reference model is resident
training.kl_coefficient | float | | weight of the KL penalty (beta)
training.num_generations | int>=1 | | completions per prompt
training.entropy_coefficient | float | | weight of the entropy bonus
training.ds3_gather_for_generation | bool | | ZeRO-3 weights are gathered for generate
training.use_remove_padding | bool | | verl packs sequences
training.quantize_moe_experts | bool | | axolotl quantises fused experts while loading
training.auto_find_batch_size | bool | | the trainer retries with smaller batches
rollout.engine | str | vllm, sglang, hf, trtllm | generation engine
rollout.gpu_memory_utilization | float | fraction | share of the device the engine may use
rollout.enforce_eager | bool | | no CUDA graphs
rollout.cuda_graphs | bool | | CUDA graphs are captured
rollout.free_cache_engine | bool | | KV cache is released between rollouts
rollout.max_num_seqs | int>=1 | sequences | concurrent sequences
rollout.max_num_batched_tokens | int>=1 | tokens | tokens per engine step
rollout.n | int>=1 | | completions per prompt
rollout.tensor_parallel | int>=1 | | tensor-parallel ranks of the engine
rollout.expert_parallel | int>=1 | | expert-parallel ranks of the engine
rollout.sleep_mode | bool | | the engine gives memory back while training
rollout.sleep_level | int | 1, 2 | vLLM sleep level
rollout.colocated | bool | | engine and trainer share devices
rollout.mode | str | colocate, server | TRL vllm_mode
rollout.log_prob_micro_batch_size | int>=1 | sequences | sequences per forward when scoring
rollout.global_batch_size | int>=1 | sequences | completions generated between two updates, over all ranks
rollout.log_prob_micro_batch_is_global | bool | | the key for scoring counts sequences over all ranks
rollout.log_prob_micro_batch_tokens | int>=1 | tokens | tokens per device and forward when scoring, where batches are cut by length
rollout.prompt_logprobs | bool | | prompt log-probabilities are requested
rollout.layered_summon | bool | | weights are gathered layer by layer for the engine
run.no_grad_forward_between | bool | | the same engine runs a second forward under no_grad between forward and backward
run.attention_mask | str | none, ones, padding | mask the batches carry: not passed at all, all ones, or with padding
run.outputs_kept | bool | | model outputs stay referenced during backward
run.other_resident_bytes | bytes | | device memory held by other processes
run.retriever_on_gpu | bool | | a retrieval index shares the training devices
run.repeated_initialize | bool | | engines are created and destroyed in one process
run.resumes_checkpoint | bool | | training starts from a checkpoint
run.saves_full_state_dict | bool | | a gathered state dict is built while training
run.converts_zero_checkpoint | bool | | zero_to_fp32 consolidates a ZeRO checkpoint
run.multiple_adapters | bool | | a second adapter is added to the model
run.merges_adapter | bool | | the adapter is merged while the base is resident
run.loads_second_model | bool | | a second model is loaded in the process
run.flex_attention_compiled | bool | | flex_attention runs under torch.compile
run.custom_autograd_function | bool | | a custom autograd.Function stands last in a checkpointed region
run.async_tensor_parallel | bool | | collectives run asynchronously on their own stream
run.channels_last_3d | bool | | 5-D tensors are in channels_last_3d layout
run.checkpoint_wrappers | bool | | external checkpoint wrappers around submodules
"""

PROGRAM = "program"
"""Unit of a name that has a record in ``rules/_programs``."""


class Term(NamedTuple):
    """One name of the vocabulary."""

    name: str
    type: str
    """``bool``, ``int``, ``float``, ``str``, ``bytes``, ``dtype``, ``version`` or ``set``."""
    nullable: bool
    """Whether an explicit None ("there is none") is a value."""
    unit: str | None
    words: tuple[str, ...]
    """Allowed values as the table lists them; empty when free. Those of the unit `PROGRAM`: `compatcheck.rules.values`."""
    meaning: str
    minimum: int = 0
    """Smallest value of an ``int`` or ``bytes``."""


@lru_cache(maxsize=1)
def vocabulary() -> dict[str, Term]:
    """Return every term by name, in the order of the table."""
    terms = {}
    for row in _TABLE.strip().splitlines():
        name, kind, third, meaning = (cell.strip() for cell in row.split("|", 3))
        nullable = kind.endswith("?")
        kind, _, minimum = kind.rstrip("?").partition(">=")
        closed = "," in third
        allowed = tuple(value.strip() for value in third.split(",")) if closed else ()
        unit = None if closed or not third else third
        terms[name] = Term(name, kind, nullable, unit, allowed, meaning, int(minimum or 0))
    return terms


@lru_cache(maxsize=512)
def type_of(name: str) -> str:
    """Return the type of a term without parsing the table; empty where there is no such name."""
    kind = _TABLE.partition(f"\n{name} | ")[2].partition(" ")[0]
    return kind.rstrip("?").partition(">=")[0]


def nearest(name: str, known: tuple[str, ...] | list[str]) -> str | None:
    """Return the known name most like ``name``, also one without its group (``zero_stage``), or None when none is close."""
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    stated = [full for full in known if not full.startswith(TRAITS)]  # what a program's code does nobody states
    by_end = {full.rpartition(".")[2]: full for full in reversed(stated)}
    candidates = {**dict.fromkeys(by_end), **dict.fromkeys(known)} if "." not in name else known
    matches = get_close_matches(name, candidates, n=1, cutoff=0.75)
    return by_end.get(matches[0], matches[0]) if matches else None
