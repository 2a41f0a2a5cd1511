// Greedy tokens of llama.cpp and the logits they were taken from.
//
//   headrace-logits MODEL.gguf THREADS NEW OUT ID...
//
// Computes the prompt ID..., then NEW tokens one at a time. OUT gets int32 n_vocab, int32 NEW, the
// NEW token ids (int32) and the logits each was taken from (float32[NEW][n_vocab]).

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

static void fail(const char * what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

int main(int argc, char ** argv) {
    if (argc < 6) fail("usage: headrace-logits MODEL THREADS NEW OUT ID...");
    const int threads = std::atoi(argv[2]), wanted = std::atoi(argv[3]);
    std::vector<llama_token> prompt;
    for (int i = 5; i < argc; ++i) prompt.push_back(std::atoi(argv[i]));

    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == nullptr) fail("the model cannot be loaded");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(prompt.size()) + static_cast<uint32_t>(wanted) + 8;
    params.n_batch = params.n_ubatch = static_cast<uint32_t>(prompt.size());
    params.n_threads = params.n_threads_batch = threads;
    llama_context * context = llama_init_from_model(model, params);
    if (context == nullptr) fail("no context can be made");

    const int32_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::vector<llama_token> tokens;
    std::vector<float> logits;
    std::vector<llama_token> next = prompt;
    for (int step = 0; step < wanted; ++step) {
        if (llama_decode(context, llama_batch_get_one(next.data(), static_cast<int32_t>(next.size()))) != 0) {
            fail("a step failed");
        }
        const float * row = llama_get_logits_ith(context, -1);
        int32_t best = 0;
        for (int32_t i = 1; i < vocab; ++i) if (row[i] > row[best]) best = i;
        logits.insert(logits.end(), row, row + vocab);
        tokens.push_back(best);
        next.assign(1, best);
    }

    std::FILE * out = std::fopen(argv[4], "wb");
    if (out == nullptr) fail("OUT cannot be written");
    const int32_t header[2] = {vocab, wanted};
    bool good = std::fwrite(header, sizeof header, 1, out) == 1;
    good = good && std::fwrite(tokens.data(), sizeof(llama_token), tokens.size(), out) == tokens.size();
    good = good && std::fwrite(logits.data(), sizeof(float), logits.size(), out) == logits.size();
    if (std::fclose(out) != 0 || !good) fail("OUT cannot be written");
    llama_free(context);
    llama_model_free(model);
    return 0;
}
