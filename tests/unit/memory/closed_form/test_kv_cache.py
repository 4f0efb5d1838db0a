from compatcheck.memory.closed_form.kv_cache import bytes_per_token, kv_cache


def test_a_token_takes_keys_and_values_of_every_layer(make_run):
    model = make_run().model
    assert bytes_per_token(model, 2) == 2 * 2 * 32 * 128 * 32  # 512 KiB for Llama-2-7B


def test_heads_are_split_but_never_below_one(make_run):
    model = make_run(model__num_key_value_heads=4).model
    assert bytes_per_token(model, 2, tensor_parallel=8) == 2 * 2 * 1 * 128 * 32


def test_the_cache_grows_with_its_tokens(make_run):
    assert kv_cache(make_run(), 4096).size.expected == 4096 * 524288


def test_engines_keep_latent_attention_compressed_on_every_rank(make_run):
    model = make_run().model._replace(latent=576)
    assert bytes_per_token(model, 2, tensor_parallel=8, compressed=True) == 576 * 2 * model.layers
    assert bytes_per_token(model, 2) == bytes_per_token(model._replace(latent=0), 2)  # transformers expands it
