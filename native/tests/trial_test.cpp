// The trial of a level: what computes the same for few rows and many passes, nothing else does.

#include "trial.h"

#include <csignal>

#include "suites.h"

namespace headrace::tests {
namespace {

const Kernels* tried;

const Product& faulting(Codec codec, bool many_rows) {
  static const Product product = {
      false, 64,
      [](const LinearArgs&, const PanelRange&, int64_t, int64_t, void*) { raise(SIGILL); }};
  return many_rows ? product : tried->product(codec, false);
}

const Product& wrong(Codec codec, bool many_rows) {
  static const Product product = {
      false, 64, [](const LinearArgs& a, const PanelRange&, int64_t row, int64_t end, void*) {
        for (int64_t i = row * a.weight.out; i < end * a.weight.out; ++i) a.y[i] = 0;
      }};
  return many_rows && codec == Codec::q6_k ? product : tried->product(codec, many_rows);
}

}  // namespace

void trial_suite(const Kernels& kernels, Checks& checks) {
  tried = &kernels;
  checks.that(passes_trial(kernels), "a level that works passes its trial");
  Kernels broken = kernels;
  broken.product = wrong;
  checks.that(!passes_trial(broken), "another result for many rows fails the trial");
  broken.product = faulting;
  checks.that(!passes_trial(broken), "an instruction that faults fails the trial and no more");
}

}  // namespace headrace::tests
