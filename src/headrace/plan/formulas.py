"""What each id of a formula says.

F ids are those of the register of formulas that the catalog began with, M ids are of memory, T ids
of time, O ids of recommendations, Q ids of simulations.
"""

from __future__ import annotations

FORMULAS = {
    "F6": "weights = parameters · bits per weight / 8",
    "F7": "KV of a request = Σ layers · (keys + values of a token) · bytes · tokens kept",
    "M1": "weights = Σ bytes of the tensors in the header",
    "M2": "activations = tokens per step · coefficient · hidden size · 2 B "
    "+ requests · vocabulary · 4 B",
    "M3": "usable = memory · share that a runtime takes",
    "M4": "free for KV = usable − weights / devices − activations − runtime",
    "M5": "most context = the longest for which users · KV of a request fits in what is free",
    "M6": "most users = ⌊free / KV of a request⌋",
    "M7": "needed = weights / devices + users · KV of a request + activations + runtime",
    "M8": "runtime = memory of the program, and of collectives between devices",
    "M9": "too much = needed − usable",
    "M10": "saving = needed − needed with the change",
    "M11": "weights of a device = weights / devices",
    "T1": "prefill = Σ over chunks of max(bytes / bandwidth, operations / their peaks), each with "
    "its efficiency, + links + launches; TTFT is this and all waiting",
    "T2": "TPOT = max((weights + KV) / bandwidth, operations of the batch / their peaks), each "
    "with its efficiency, + links + launches",
    "T1C": "prefill = Σ over chunks of join(weights / bandwidth, operations / rate) + attention "
    "alike + values + layers, with calibrated rates; join(x, y) = (x^p + y^p)^(1/p); TTFT is this "
    "and all waiting",
    "T2C": "TPOT = join(weights / bandwidth, operations of the batch / rate) + attention alike + "
    "values + logits + layers, with calibrated rates; join(x, y) = (x^p + y^p)^(1/p)",
    "F3": "E2E = TTFT + TPOT · (output tokens − 1)",
    "T4": "throughput = batch / TPOT",
    "T5": "served = batch · (prompt + output) / (batch · prefill + (output − 1) · TPOT), of prompt "
    "and output together, as prefill stops decoding",
    "T6": "tokens/s of a user = 1 / TPOT",
    "T7": "ridge = peak · compute efficiency / (bandwidth · bandwidth efficiency)",
    "T8": "knee = least batch at which operations / their peaks ≥ bytes / bandwidth, each with its "
    "efficiency",
    "S1": "tokens of a step = (1 − α^(K+1)) / (1 − α)",
    "S2": "cost of a step with drafts = K · draft step / step + step of K + 1 tokens / step",
    "S3": "speedup = tokens of a step / cost of a step with drafts",
    "D1": "prefill and transfer = prefill · correction + latency + KV of the prompt / bandwidth",
    "D2": "TPOT apart = TPOT · correction, as no prefill stops a decode step",
    "D3": "requests/s apart = min(prefill replicas / prefill, decode replicas · batch "
    "/ ((output − 1) · TPOT))",
    "D4": "requests/s together = replicas · batch / (batch · prefill + (output − 1) · TPOT)",
    "D5": "transfer = latency + KV of the prompt on a device / bandwidth",
    "P1": "own = (devices · (price / (years · 8760 h) + kW · PUE · USD/kWh) + operations) "
    "/ (served · 3600 s · utilisation)",
    "P2": "rented = devices · USD/h · overhead / (served · 3600 s · utilisation)",
    "P3": "API = (prompt · ((1 − hit) · input + hit · cached read) + output · price) · batch "
    "factor / (prompt + output)",
    "P4": "break-even = least volume at which ⌈volume / capacity⌉ · USD/month + volume · marginal "
    "is not above volume · price",
    "P5": "a request = USD/1M tokens · (prompt + output) / 10^6",
    "P6": "a month of a replica = USD/h without work · 730 h",
    "P7": "capacity = served · 3600 s · utilisation · 730 h",
    "P8": "a month = ⌈volume / capacity⌉ · month of a replica + volume · marginal",
    "P9": "1M tokens = a month / volume · 10^6",
    "P10": "a month by API = volume · USD/1M tokens",
    "P11": "cascade = USD/request of the small model + escalation · USD/request of the large one",
    "P12": "E2E of a cascade = E2E of the small model + escalation · E2E of the large one",
    "O1": "capacity = batch / (batch · prefill + (output − 1) · TPOT), of the largest batch that "
    "fits and keeps the limits on TPOT and E2E",
    "O2": "replicas = ⌈rate / (capacity · utilisation)⌉; in flight = rate · E2E (Little)",
    "O3": "prefill and the wait for other prompts = prefill + ρ · prefill / (2 · (1 − ρ)), ρ = "
    "rate of a replica · prefill (M/D/1); quantile q of the wait = mean wait / ρ · ln(ρ / (1 − q))",
    "O4": "TPOT under load = TPOT of the batch / (1 − ρ), as prefills take ρ of the time",
    "O5": "USD a month = replicas · devices · USD/h · 730 h; by API: mean rate · 730 h · USD a "
    "request",
    "O6": "size, as a proxy of quality = √(total · active parameters)",
    "O7": "as others published it; TPOT = 1 / tokens per second of a request",
    "Q1": "requests that ended, of the load as the engine's own scheduler and KV cache run it on "
    "the replicas, with these step times",
    "Q2": "a step = fixed part + prompt tokens · prefill token + pairs · prefill pair + requests · "
    "decode request + context · decode context token",
    "Q3": "KV tokens of a replica = ⌊free for KV / KV of a block⌋ · tokens of a block",
    "Q4": "mean of the requests that ended; band: 95 % by batch means",
    "Q5": "percentile of the requests that ended; band: 95 % by batch means",
    "Q6": "longest of the requests that ended",
    "Q7": "rate = what ended in the run / seconds of the run",
    "Q8": "share good = requests that met every limit of each / requests judged; refused ones are "
    "bad",
    "Q9": "mean over the time of the run",
    "Q10": "most at any point of the run",
    "Q11": "counted in the run",
    "Q12": "replica-hours = Σ hours that a replica was paid for, cold starts included",
    "Q13": "cost = replica-hours · USD/h of a replica",
    "Q14": "1M output tokens = cost / output tokens of requests that ended · 10^6",
    "Q15": "fewest replicas with which the attainment is reached and every limit of all holds",
}
