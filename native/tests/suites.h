// The suites of the native test program. Each runs one level's kernels.

#pragma once

#include "check.h"
#include "kernels.h"

namespace headrace::tests {

void linear_suite(const Kernels& kernels, Checks& checks);
// Products of the kinds that a processor with VBMI looks up in another way.
void books_suite(const Kernels& kernels, Checks& checks);
void elementwise_suite(const Kernels& kernels, Checks& checks);
void attention_suite(const Kernels& kernels, Checks& checks);
void row_suite(const Kernels& kernels, Checks& checks);
void sample_suite(const Kernels& kernels, Checks& checks);
void experts_suite(const Kernels& kernels, Checks& checks);
void heads_suite(const Kernels& kernels, Checks& checks);
void trial_suite(const Kernels& kernels, Checks& checks);
void buffer_suite(const Kernels& kernels, Checks& checks);
// Of threads, whatever the level.
void thread_pool_suite(Checks& checks);

}  // namespace headrace::tests
