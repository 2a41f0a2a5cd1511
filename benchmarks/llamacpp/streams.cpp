// Decoding of many streams at once, each with random tokens of its own, in llama.cpp or ik_llama.cpp.
//
//   headrace-streams MODEL.gguf THREADS PROMPT STEPS REPACK STREAMS...
//
// One line of JSON for each number of STREAMS: tokens per second of STEPS steps after PROMPT tokens of
// each. Their own tools feed some versions one and the same token to all streams, which then choose
// the same experts. REPACK 1 repacks the weights at load where the library has that as a setting.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "llama.h"

static void fail(const char * what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

template <class Params>
static void set_repack(Params & params, bool repack) {
    if constexpr (requires { params.repack_tensors; }) params.repack_tensors = repack;
}

// ik_llama.cpp's flash attention asserts on several sequences in a batch, in its own tools as well.
template <class Params>
static void set_plain_attention(Params & params) {
    if constexpr (requires { params.flash_attn; }) params.flash_attn = false;
}

static void add(llama_batch & batch, llama_token token, int position, int stream, bool logits) {
    const int i = batch.n_tokens++;
    batch.token[i] = token;
    batch.pos[i] = position;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = stream;
    batch.logits[i] = logits;
}

static void compute(llama_context * context, llama_batch & batch) {
    if (llama_decode(context, batch) != 0) fail("a step failed");
    llama_synchronize(context);
    batch.n_tokens = 0;
}

int main(int argc, char ** argv) {
    if (argc < 7) fail("usage: headrace-streams MODEL THREADS PROMPT STEPS REPACK STREAMS...");
    const int threads = std::atoi(argv[2]), prompt = std::atoi(argv[3]), steps = std::atoi(argv[4]);
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model_params settings = llama_model_default_params();
    set_repack(settings, std::atoi(argv[5]) != 0);
    llama_model * model = llama_model_load_from_file(argv[1], settings);
    if (model == nullptr) fail("the model cannot be loaded");
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const auto random_token = [&] { return static_cast<llama_token>(std::rand() % vocab); };

    for (int arg = 6; arg < argc; ++arg) {
        const int streams = std::atoi(argv[arg]);
        llama_context_params params = llama_context_default_params();
        // A whole number of 256 for each stream: caches are cut into equal parts of such.
        params.n_ctx = static_cast<uint32_t>(streams * ((prompt + steps + 1 + 255) / 256 * 256));
        params.n_batch = 2048;
        params.n_ubatch = 512;
        params.n_seq_max = streams;
        set_plain_attention(params);
        params.n_threads = params.n_threads_batch = threads;
        llama_context * context = llama_init_from_model(model, params);
        if (context == nullptr) fail("no context can be made");
        llama_batch batch = llama_batch_init(2048, 0, 1);
        batch.n_tokens = 0;
        for (int stream = 0; stream < streams; ++stream) {
            for (int i = 0; i < prompt; ++i) add(batch, random_token(), i, stream, i == prompt - 1);
            compute(context, batch);
        }
        std::chrono::steady_clock::time_point start;
        // The first step is not timed.
        for (int step = 0; step <= steps; ++step) {
            if (step == 1) start = std::chrono::steady_clock::now();
            for (int i = 0; i < streams; ++i) add(batch, random_token(), prompt + step, i, true);
            compute(context, batch);
        }
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        std::printf("{\"streams\": %d, \"tokens_per_s\": %.4f}\n", streams,
                    streams * steps / seconds.count());
        std::fflush(stdout);
        llama_batch_free(batch);
        llama_free(context);
    }
    return 0;  // the model goes with the process: what frees it has two names
}
