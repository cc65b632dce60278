/* option_table.c: the subcommands and the options, as data. What is said here is what the parser enforces and what
 * every help text, the man page and the completions show. */
#include "device/cuda_like.h"
#include "options.h"

#define ON(c) (1u << (c))
#define EVERY ((1u << CMD_COUNT) - 1)
/* Commands by what they touch. */
#define GENERATES (TEXTS | ON(CMD_CHAT))
#define TEXTS (ON(CMD_RUN) | ON(CMD_COMPLETE)) /* one prompt */
#define SAMPLES (GENERATES | ON(CMD_BENCH))
/* A worker elsewhere, always or instead of a model in this process. */
#define ASKS (ON(CMD_ADMIN) | ON(CMD_STATUS) | ON(CMD_JOBS) | ON(CMD_CANCEL) | ON(CMD_MODELS) | ON(CMD_METRICS))
#define EITHER (ON(CMD_COMPLETE) | ON(CMD_CHAT))
#define STEPS (GENERATES | ON(CMD_SCORE) | ON(CMD_EMBED) | ON(CMD_BENCH) | ON(CMD_DEBUG) | ON(CMD_IMATRIX))
#define LOADS (STEPS | ON(CMD_VERIFY) | ON(CMD_SERVE))
#define PLANS (LOADS | ON(CMD_PLAN) | ON(CMD_LIST) | ON(CMD_DOCTOR))
#define VOCABULARIES (ON(CMD_TOKENIZE) | ON(CMD_DETOKENIZE) | ON(CMD_RENDER) | ON(CMD_GRAMMAR))
#define MODELS (LOADS | VOCABULARIES)
/* Those that take a model by its name. */
#define NAMES (MODELS | ON(CMD_PLAN) | ON(CMD_LIST) | ON(CMD_DOCTOR) | ON(CMD_INSPECT) | ON(CMD_QUANTIZE))
#define PLUGINS (PLANS | ON(CMD_INSPECT) | ON(CMD_CAPABILITIES) | ON(CMD_PLUGIN) | ON(CMD_QUANTIZE))

#define ANY64 0x1p64
#define TEXT_MAX 1048576.0 /* bytes of one argument */

const struct option_def option_table[OPT_COUNT] = {
    [OPT_MODEL] = { "model", 'm', OPTION_TEXT, true, MODELS | ON(CMD_PLUGIN), "FILE", 1, 4096, NULL,
                    "model to use: a GGUF file's path, which has a / or ends in .gguf; or the name of a model in "
                    "--model-dir, of Ollama's or in the hub's cache, as worker list shows it, also hf:ORG/NAME:QUANT; "
                    "or embedded:NAME, a model inside the program; without it embedded:haiku, but for tokenize, "
                    "detokenize and render, and for grammar, which then takes "
                    "bytes" },
    [OPT_PROMPT] = { "prompt", 'p', OPTION_TEXT, false, ON(CMD_RUN), "TEXT", 0, TEXT_MAX, NULL,
                     "text to continue; without it and without --file it is read from standard input" },
    [OPT_FILE] = { "file", 'f', OPTION_TEXT, false,
                   TEXTS | ON(CMD_TOKENIZE) | ON(CMD_SCORE) | ON(CMD_EMBED) | ON(CMD_DEBUG) | ON(CMD_IMATRIX), "FILE",
                   1, 4096, NULL, "read the text from FILE; - is standard input" },
    [OPT_TEXT] = { "text", 0, OPTION_TEXT, false, ON(CMD_SCORE) | ON(CMD_DEBUG) | ON(CMD_IMATRIX), "TEXT", 0, TEXT_MAX,
                   NULL, "the text itself" },
    [OPT_IDS] = { "ids", 0, OPTION_TEXT, false, ON(CMD_SCORE) | ON(CMD_DEBUG) | ON(CMD_IMATRIX), "IDS", 1, TEXT_MAX,
                  NULL, "token ids separated by spaces, instead of text" },
    [OPT_MAX_TOKENS] = { "max-tokens", 'n', OPTION_INTEGER, true, GENERATES, "N", 1, 1048576, "2048",
                         "stop after N generated tokens" },
    [OPT_TEMPERATURE] = { "temperature", 0, OPTION_REAL, true, SAMPLES, "T", 0, 2, "1",
                          "divide the logits by T; 0 takes the most likely token" },
    [OPT_TOP_K] = { "top-k", 0, OPTION_INTEGER, true, SAMPLES, "K", 0, 16777216, "0",
                    "draw from the K most likely tokens; 0 is off" },
    [OPT_TOP_P] = { "top-p", 0, OPTION_REAL, true, SAMPLES, "P", 0, 1, "1",
                    "draw from the smallest set of tokens that reaches probability P; 1 is off" },
    [OPT_MIN_P] = { "min-p", 0, OPTION_REAL, true, SAMPLES, "P", 0, 1, "0",
                    "drop tokens less likely than P times the most likely one" },
    [OPT_REPETITION_PENALTY] = { "repetition-penalty", 0, OPTION_REAL, true, GENERATES, "R", 0.01, 2, "1",
                                 "divide the positive, multiply the negative logits of generated tokens by R; 1 is "
                                 "off" },
    [OPT_PRESENCE_PENALTY] = { "presence-penalty", 0, OPTION_REAL, true, GENERATES, "X", -2, 2, "0",
                               "subtract X from the logit of every generated token" },
    [OPT_FREQUENCY_PENALTY] = { "frequency-penalty", 0, OPTION_REAL, true, GENERATES, "X", -2, 2, "0",
                                "subtract X from the logit of a token each time it was generated" },
    [OPT_LOGIT_BIAS] = { "logit-bias", 0, OPTION_LIST, false, GENERATES, "ID=X", 0, 300, NULL,
                         "add X, -100 to 100, to the logit of token ID; may be repeated" },
    [OPT_SEED] = { "seed", 's', OPTION_INTEGER, true, GENERATES, "S", 0, ANY64, NULL,
                   "seed of the draw; random when not given, always printed" },
    [OPT_STOP] = { "stop", 0, OPTION_LIST, false, GENERATES, "TEXT", 0, 4, NULL,
                   "stop before TEXT appears; may be repeated" },
    [OPT_CHAT] = { "chat", 0, OPTION_FLAG, false, ON(CMD_RUN), NULL, 0, 1, NULL,
                   "send the prompt as one user turn in the model's chat template; the default for a model that has "
                   "one" },
    [OPT_RAW] = { "raw", 0, OPTION_FLAG, false, ON(CMD_RUN), NULL, 0, 1, NULL,
                  "send the prompt as it is; the default for a model without a chat template" },
    [OPT_PARSE_SPECIAL] = { "parse-special", 0, OPTION_FLAG, false, TEXTS, NULL, 0, 1, NULL,
                            "send the prompt as it is, and read the text of control tokens in it as those tokens" },
    [OPT_REASONING] = { "reasoning", 0, OPTION_FLAG, false, ON(CMD_RUN), NULL, 0, 1, NULL,
                        "write a model's reasoning, which is not part of its answer, to standard error" },
    [OPT_REASONING_EFFORT] = { "reasoning-effort", 0, OPTION_CHOICE, true, ON(CMD_RUN) | ON(CMD_CHAT),
                               "none|minimal|low|medium|high", 0, 0, NULL,
                               "how long a model thinks before it answers, where it can be told; gpt-oss models "
                               "think medium long when nothing is said" },
    [OPT_CHAT_TEMPLATE] = { "chat-template", 0, OPTION_TEXT, true,
                            ON(CMD_RUN) | ON(CMD_CHAT) | ON(CMD_SERVE) | ON(CMD_RENDER), "FILE", 1, 4096, NULL,
                            "chat template (Jinja) to use instead of the one in the model's file" },
    [OPT_TEMPLATE_DATE] = { "template-date", 0, OPTION_TEXT, true, ON(CMD_RUN) | ON(CMD_CHAT) | ON(CMD_SERVE), "TIME",
                            1, 64, NULL,
                            "day or time (RFC 3339) that chat templates are told when they ask what time it is, so "
                            "that "
                            "prompts stay the same; without it they are told the time of the request" },
    [OPT_TOOL_FORMAT] = { "tool-format", 0, OPTION_CHOICE, true, ON(CMD_SERVE), "json", 0, 0, NULL,
                          "how a model calls functions whose template tells of no form that is known: plain JSON, "
                          "where a call is required; without it tools are refused then" },
    [OPT_TEMPLATE] = { "template", 0, OPTION_TEXT, false, ON(CMD_RENDER), "FILE", 1, 4096, NULL,
                       "chat template to render, without a model, or instead of the model's" },
    [OPT_MESSAGES] = { "messages", 0, OPTION_TEXT, false, ON(CMD_RENDER), "FILE", 1, 4096, NULL,
                       "JSON list of messages, as /v1/chat/completions takes it; - is standard input" },
    [OPT_TOOLS] = { "tools", 0, OPTION_TEXT, false, ON(CMD_RENDER), "FILE", 1, 4096, NULL,
                    "JSON list of the functions that the model may call" },
    [OPT_KWARGS] = { "kwargs", 0, OPTION_TEXT, false, ON(CMD_RENDER), "JSON", 1, TEXT_MAX, NULL,
                     "object of further variables of the template, such as {\"enable_thinking\": false}" },
    [OPT_CONTEXT_FILE] = { "context", 0, OPTION_TEXT, false, ON(CMD_RENDER), "FILE", 1, 4096, NULL,
                           "JSON object that is the template's whole context, as it is; - is standard input" },
    [OPT_AS_IS] = { "as-is", 0, OPTION_FLAG, false, ON(CMD_RENDER), NULL, 0, 1, NULL,
                    "give the template the messages as they are, without bringing them into the shape that it takes" },
    [OPT_NOW] = { "now", 0, OPTION_TEXT, false, ON(CMD_RENDER), "TIME", 1, 64, NULL,
                  "day or time (RFC 3339) that the template is told when it asks what time it is" },
    [OPT_RUNS] = { "runs", 0, OPTION_FLAG, false, ON(CMD_RENDER), NULL, 0, 1, NULL,
                   "print runs of the text as JSON, each with its origin: template or input" },
    [OPT_TOKENIZER] = { "tokenizer", 0, OPTION_TEXT, true, STEPS | ON(CMD_SERVE) | VOCABULARIES, "FILE", 1, 4096, NULL,
                        "tokenizer.json to use instead of the vocabulary in the model's file; a file that has none "
                        "uses the tokenizer.json beside it" },
    [OPT_ACCEPT_KEY] = { "accept-key", 0, OPTION_LIST, false, PLANS | ON(CMD_INSPECT) | VOCABULARIES, "NAME", 0, 64,
                         NULL,
                         "take a file that is refused for its key NAME as if it did not have it; may be repeated" },
    [OPT_LORA] = { "lora", 0, OPTION_LIST, false, (LOADS & ~ON(CMD_IMATRIX)) | ON(CMD_PLAN), "FILE[:SCALE]", 0, 16,
                   NULL,
                   "LoRA adapter (GGUF) that is added to the model's weights, SCALE times (1 when not given; 0: it is "
                   "checked, and changes nothing); may be repeated, then they add up; fixed until the program ends" },
    [OPT_PRINT_IDS] = { "ids", 0, OPTION_FLAG, false, ON(CMD_RUN) | ON(CMD_RENDER), NULL, 0, 1, NULL,
                        "print token ids separated by spaces instead of text" },
    [OPT_SPECIAL] = { "special", 0, OPTION_FLAG, false, ON(CMD_TOKENIZE), NULL, 0, 1, NULL,
                      "read the text of control tokens in the input as those tokens" },
    [OPT_NO_BOS] = { "no-bos", 0, OPTION_FLAG, false, ON(CMD_TOKENIZE), NULL, 0, 1, NULL,
                     "do not put the beginning-of-sequence token first" },
    [OPT_QUERY] = { "query", 0, OPTION_TEXT, false, ON(CMD_EMBED), "TEXT", 1, TEXT_MAX, NULL,
                    "of a reranker, what the texts are scored for" },
    [OPT_LOGITS] = { "logits", 0, OPTION_TEXT, false, ON(CMD_SCORE), "OUT", 1, 4096, NULL,
                     "write the logits to OUT: raw little-endian F32 [tokens, vocabulary]" },
    [OPT_TAP] = { "tap", 0, OPTION_LIST, false, ON(CMD_DEBUG), "NAME", 0, 256, NULL,
                  "value to write, as debug tape names it, NAME.scores of an attention, selected_logits or "
                  "probabilities of the last row, output_embedding of a text; all for every one; may be repeated" },
    [OPT_OUT] = { "out", 'o', OPTION_TEXT, false, ON(CMD_DEBUG), "DIR", 1, 4096, NULL,
                  "folder for the tapped values; made if absent, must be empty" },
    [OPT_IMATRIX_OUT] = { "out", 'o', OPTION_TEXT, false, ON(CMD_IMATRIX), "FILE", 1, 4096, NULL,
                          "importance matrix to write" },
    [OPT_IMATRIX] = { "imatrix", 0, OPTION_TEXT, false, ON(CMD_QUANTIZE), "FILE", 1, 4096, NULL,
                      "importance matrix (GGUF) of this model, as worker imatrix or llama.cpp writes it: encoders "
                      "weigh "
                      "errors by it" },
    [OPT_DEVICE_LIKE] = { "device-like", 0, OPTION_CHOICE, false, ON(CMD_DEBUG), CUDA_LIKE_NAMES, 0, 0, "sm_90",
                          "GPU that debug kernels chooses for: its compute capability, with the sizes of a card that "
                          "has "
                          "it" },
    [OPT_SCHEMA] = { "schema", 0, OPTION_TEXT, false, ON(CMD_GRAMMAR), "FILE", 1, 4096, NULL,
                     "a JSON Schema: the text is a value that fits it; - is standard input" },
    [OPT_JSON_SCHEMA] = { "json-schema", 0, OPTION_TEXT, false, TEXTS, "FILE", 1, 4096, NULL,
                          "the answer is a JSON value that fits this JSON Schema; - is standard input" },
    [OPT_GRAMMAR] = { "grammar", 0, OPTION_TEXT, false, TEXTS | ON(CMD_GRAMMAR), "FILE", 1, 4096, NULL,
                      "a grammar in llama.cpp's notation (GBNF); - is standard input" },
    [OPT_REGEX] = { "regex", 0, OPTION_TEXT, false, TEXTS | ON(CMD_GRAMMAR), "REGEX", 0, TEXT_MAX, NULL,
                    "a regular expression that the whole text matches" },
    [OPT_ACCEPTS] = { "accepts", 0, OPTION_TEXT, false, ON(CMD_GRAMMAR), "FILE", 1, 4096, NULL,
                      "say whether the text of FILE fits: one line of JSON, accepted and the byte at which it stopped "
                      "fitting; white space around a value of --schema counts for nothing" },
    [OPT_DEVICE] = { "device", 'd', OPTION_CHOICE, true, PLANS, "cpu|cuda", 0, 0, "cpu",
                     "where to compute; nothing ever falls back to another device" },
    [OPT_GPU_DEVICE] = { "gpu-device", 0, OPTION_INTEGER, true, PLANS, "N", 0, 1023, "0",
                         "which GPU of --device cuda, counted from 0" },
    [OPT_FLASH_ATTENTION] = { "cuda-flash-attention", 0, OPTION_SWITCH, true, PLANS, "on|off", 0, 0, "on",
                              "attention of --device cuda as one fused kernel that never stores scores; there is no "
                              "other, so off is refused there; no effect on the CPU" },
    [OPT_FLASH_TILE] = { "cuda-flash-tile", 0, OPTION_INTEGER, true, PLANS, "N", 16, 1024, "128",
                         "positions of a tile of that kernel; today's kernels choose their own, so another number than "
                         "the "
                         "default is refused with --device cuda; no effect on the CPU" },
    [OPT_DIGEST] = { "digest", 0, OPTION_TEXT, true, LOADS, "SHA256", 64, 64, NULL,
                     "refuse a model whose weights have another SHA-256 (of the tensors' bytes in the file's order, "
                     "then of "
                     "those of each adapter, as verify prints it); on the CPU they are all read for it before the "
                     "model is ready" },
    [OPT_UPLOAD_CHUNK] = { "upload-chunk-mb", 0, OPTION_INTEGER, true, LOADS, "N", 0, 64, "0",
                           "mebibytes that one copy to a GPU takes at a time; 0 is what was measured best" },
    [OPT_THREADS] = { "threads", 't', OPTION_INTEGER, true, PLANS | ON(CMD_QUANTIZE), "N", 0, 1024, "0",
                      "processor threads of --device cpu; 0 is one for each allowed processor, within the control "
                      "group's limit" },
    [OPT_ISA] = { "isa", 0, OPTION_CHOICE, true, PLANS | ON(CMD_PLUGIN), "portable|avx2|avx512", 0, 0, NULL,
                  "instruction set of --device cpu, and that plugin check tries: computes as a processor that has no "
                  "more would; one that this processor does not have is refused; the best that it has when not given" },
    [OPT_EXACT] = { "exact", 0, OPTION_FLAG, true, PLANS, NULL, 0, 1, NULL,
                    "32-bit activations and KV cache instead of 8-bit and 16-bit ones" },
    [OPT_CONTEXT] = { "context", 'c', OPTION_INTEGER, true, PLANS, "N", 0, 16777216, "0",
                      "tokens of a prompt and its answer together; 0 is what the model was trained for, but not more "
                      "than "
                      "4096: give a number for more" },
    [OPT_MAX_SEQUENCES] = { "max-sequences", 0, OPTION_INTEGER, true, ON(CMD_PLAN) | ON(CMD_LIST), "N", 0, 512, "0",
                            "what worker serve takes with that flag; 0: what worker run takes" },
    [OPT_BENCH_PROMPT] = { "prompt-tokens", 'p', OPTION_INTEGER, false, ON(CMD_BENCH), "N", 1, 1048576, "512",
                           "tokens of the prefill, or of a text of a model that gives embeddings" },
    [OPT_BENCH_GENERATE] = { "generate-tokens", 'n', OPTION_INTEGER, false, ON(CMD_BENCH), "N", 1, 1048576, "128",
                             "tokens of the decode" },
    [OPT_BENCH_REPEAT] = { "repeat", 'r', OPTION_INTEGER, false, ON(CMD_BENCH), "N", 1, 1000, "5",
                           "times that both are measured" },
    [OPT_BENCH_DEPTH] = { "depth", 0, OPTION_INTEGER, false, ON(CMD_BENCH), "N", 0, 1048576, "0",
                          "positions in the cache before the decode; 0 is those of the prefill" },
    [OPT_BENCH_SEQUENCES] = { "sequences", 0, OPTION_INTEGER, false, ON(CMD_BENCH), "N", 1, 512, "1",
                              "sequences that generate together, or texts of a model of embeddings; their speeds are "
                              "added" },
    [OPT_BENCH_CONSTRAINED] = { "constrained", 0, OPTION_INTEGER, false, ON(CMD_BENCH), "N", 0, 512, "0",
                                "sequences with a mask for each token" },
    [OPT_BENCH_KERNELS] = { "kernels", 0, OPTION_FLAG, false, ON(CMD_BENCH), NULL, 0, 1, NULL,
                            "also time each launch of the decode by itself: a line a kind, with the bytes that it "
                            "reads "
                            "and their share of the bandwidth; of a GPU, one sequence" },
    [OPT_WORKER_ID] = { "worker-id", 0, OPTION_TEXT, true, ON(CMD_SERVE), "UUID", 36, 36, NULL,
                        "name of this worker in events, health and the ready callback; made up when not given" },
    [OPT_HOST] = { "host", 0, OPTION_TEXT, true, ON(CMD_SERVE) | ON(CMD_DOCTOR), "ADDRESS", 1, 64, "127.0.0.1",
                   "IPv4 or IPv6 address to listen on, or localhost (127.0.0.1 and ::1); 0.0.0.0 is all of IPv4, :: "
                   "all of both; beyond this machine keys or tokens are needed (--policy-file, --oidc-issuer)" },
    [OPT_ADMIN_HOST] = { "admin-host", 0, OPTION_TEXT, true, ON(CMD_SERVE), "ADDRESS", 1, 64, NULL,
                         "address of the second port; that of --host when not given" },
    [OPT_PORT] = { "port", 0, OPTION_INTEGER, true, ON(CMD_SERVE) | ON(CMD_DOCTOR), "N", 1024, 65535, "7531",
                   "port to listen on" },
    [OPT_ADMIN_PORT] = { "admin-port", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 65535, "0",
                         "second port with threads of its own for probes, metrics, cancel and shutdown; 0 is none" },
    [OPT_TLS_CERT] = { "tls-cert", 0, OPTION_TEXT, true, ON(CMD_SERVE), "FILE", 1, 4096, NULL,
                       "speak https on both ports, TLS 1.2 and 1.3, with the certificate in FILE (PEM), behind which "
                       "the "
                       "certificates between it and its root stand; SIGHUP reads the files of TLS again" },
    [OPT_TLS_KEY] = { "tls-key", 0, OPTION_TEXT, true, ON(CMD_SERVE), "FILE", 1, 4096, NULL,
                      "private key of the certificate (PEM, without a passphrase), which nobody else should be able to "
                      "read" },
    [OPT_TLS_CLIENT_CA] = { "tls-client-ca", 0, OPTION_TEXT, true, ON(CMD_SERVE), "FILE", 1, 4096, NULL,
                            "serve only clients with a certificate that one of those in FILE (PEM) has issued (mTLS); "
                            "probes are clients, too" },
    [OPT_MODEL_DIR] = { "model-dir", 0, OPTION_TEXT, true, NAMES | ON(CMD_PULL) | ON(CMD_PLUGIN), "DIR", 1, 4096, NULL,
                        "folder of models, where names are looked for first; without it $XDG_DATA_HOME/worker/models, "
                        "else ~/.local/share/worker/models; in serve /worker/plan and /worker/commit find models in "
                        "the folder that is given here, and nowhere else" },
    [OPT_MODEL_ID] = { "model-id", 0, OPTION_TEXT, true, ON(CMD_SERVE), "NAME", 1, 255, NULL,
                       "name of the model in answers; its own when not given" },
    [OPT_MODEL_ALIAS] = { "model-alias", 0, OPTION_LIST, false, ON(CMD_SERVE), "NAME", 0, 16, NULL,
                          "another name by which requests may call the model; * is every name; may be repeated" },
    [OPT_WAIT_FOR_COMMIT] = { "wait-for-commit", 0, OPTION_FLAG, true, ON(CMD_SERVE), NULL, 0, 1, NULL,
                              "start without a model and wait for POST /worker/commit" },
    [OPT_ROLE] = { "role", 0, OPTION_CHOICE, true, ON(CMD_SERVE), "unified|prefill|decode", 0, 0, "unified",
                   "part of a deployment that this worker plays: prefill reads prompts and hands their pages over, "
                   "decode "
                   "pulls these pages and generates, unified does both for its own requests" },
    [OPT_KV_TRANSPORT] = { "kv-transport", 0, OPTION_CHOICE, true, ON(CMD_SERVE), "channel|shm|peer", 0, 0, "channel",
                           "best way by which pages may travel: channel, the connection between both workers; shm, "
                           "shared memory of one host; peer, the other process's memory, on GPUs from GPU to GPU; "
                           "where both sides cannot do it, the next one down" },
    [OPT_PREFILL_POOL] = { "prefill-pool-size", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 512, NULL,
                           "prompts whose pages may wait for a decode worker at once; 0 is none; without it 64 with "
                           "--role prefill, else 0" },
    [OPT_DECODE_POOL] = { "decode-pool-size", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 64, NULL,
                          "prompts whose pages may be pulled from prefill workers at once; 0 is none; without it 4 "
                          "with "
                          "--role decode, else 0" },
    [OPT_HANDOVER_PEER] = { "handover-peer", 0, OPTION_LIST, false, ON(CMD_SERVE), "ADDRESS", 0, 64, NULL,
                            "pull pages also from this prefill worker, a name, an address or a network like "
                            "10.1.0.0/16; loopback addresses (127.0.0.1, ::1, localhost) need none, other addresses "
                            "of the same machine do; may be repeated" },
    [OPT_HANDOVER_HOST] = { "handover-host", 0, OPTION_TEXT, true, ON(CMD_SERVE), "NAME", 1, 255, NULL,
                            "name or address at which decode workers reach this worker; without it the address that "
                            "the "
                            "request for the prompt came to" },
    [OPT_HANDOVER_CA] = { "handover-ca", 0, OPTION_TEXT, true, ON(CMD_SERVE), "FILE", 1, 4096, NULL,
                          "pull pages over https, from workers whose certificate one of those in FILE (PEM) has "
                          "issued; "
                          "--tls-cert and --tls-key are shown to them" },
    [OPT_CALLBACK_URL] = { "callback-url", 0, OPTION_TEXT, true, ON(CMD_SERVE), "URL", 8, 2048, NULL,
                           "http address that is told by a POST when the worker is ready" },
    [OPT_ORIGIN] = { "origin", 0, OPTION_LIST, false, ON(CMD_SERVE), "ORIGIN", 0, 16, NULL,
                     "let web pages of ORIGIN, like https://chat.example.org, use this worker (CORS); * is all of "
                     "them; may be repeated" },
    [OPT_ALLOWED_HOST] = { "allowed-host", 0, OPTION_LIST, false, ON(CMD_SERVE), "NAME", 0, 16, NULL,
                           "let clients call this worker NAME, without a port; addresses, localhost and this "
                           "machine's own names need none; * is every name: then a web page can reach it by a name "
                           "of its own (DNS rebinding); may be repeated" },
    [OPT_MAX_TOKENS_IN] = { "max-tokens-in", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 16777216, "0",
                            "longest prompt in tokens; 0 is what the context holds" },
    [OPT_MAX_TOKENS_OUT] = { "max-tokens-out", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 1, 1048576, "2048",
                             "largest max_tokens of a request, and its default" },
    [OPT_MAX_PROMPT_CHARS] = { "max-prompt-chars", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 1, 1048576, "32768",
                               "longest prompt in characters; given, it holds for all messages of a request of /v1, "
                               "too" },
    [OPT_MAX_PRIORITY] = { "max-priority", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 1000, "10",
                           "largest priority of a request; waiting adds 1 every 2 s, so nobody waits more than 2 N s "
                           "for those that came later" },
    [OPT_MAX_STREAMS] = { "max-streams", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 1, 4096, "512",
                          "requests that may stream at once, waiting ones included; one more gets 429" },
    [OPT_INFERENCE_TIMEOUT] = { "inference-timeout-sec", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 1, 86400, "300",
                                "seconds from a request's arrival after which it ends with INFERENCE_TIMEOUT" },
    [OPT_SHUTDOWN_TIMEOUT] = { "shutdown-timeout-sec", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 3600, "30",
                               "seconds that running requests have to finish after SIGTERM, before they are "
                               "cancelled" },
    [OPT_DRAIN_GRACE] = { "drain-grace-sec", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 3600, "0",
                          "seconds after SIGTERM in which the worker says that it is not ready and still takes "
                          "requests, for routers to see it and to send them elsewhere" },
    [OPT_RESIDENCY] = { "residency-sec", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 1, 86400, "60",
                        "seconds between two checks that every byte of the model is in the GPU's own memory" },
    [OPT_KV_CACHE_SIZE] = { "kv-cache-size-mb", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 16777216, "0",
                            "mebibytes of the cache of keys and values; 0 is as much as is useful and fits" },
    [OPT_SERVE_SEQUENCES] = { "max-sequences", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 1, 512, "16",
                              "requests computed at once; 1 serves one after another" },
    [OPT_BATCH_TOKENS] = { "max-batch-tokens", 0, OPTION_INTEGER, true, ON(CMD_SERVE) | ON(CMD_PLAN) | ON(CMD_LIST),
                           "N", 0, 65536, "8192",
                           "tokens of all requests computed in one step: more makes long prompts faster and the pauses "
                           "of other streams longer; not fewer than --max-sequences; 0 is what was measured best for "
                           "the device" },
    [OPT_MAX_QUEUE] = { "max-queue", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 1, 65536, "1024",
                        "requests that may wait; one more gets 429" },
    [OPT_NO_PREFIX_CACHE] = { "no-prefix-cache", 0, OPTION_FLAG, true, ON(CMD_SERVE), NULL, 0, 1, NULL,
                              "do not keep the keys and values of prompts for later requests that begin alike" },
    [OPT_KV_EVICTION] = { "kv-eviction", 0, OPTION_CHOICE, true, ON(CMD_SERVE), "lru|clock", 0, 0, "lru",
                          "which pages of earlier prompts go first: those used longest ago, or by Clock those that "
                          "were not used again" },
    [OPT_COMPLETION_CACHE] = { "completion-cache", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "MIB", 0, 1048576, "0",
                               "mebibytes of host memory for whole answers, which are given again to who asks the "
                               "same with a seed or with temperature 0; 0 keeps none" },
    [OPT_KV_EVENTS] = { "kv-events", 0, OPTION_TEXT, true, ON(CMD_SERVE), "tcp://HOST:PORT", 1, 255, NULL,
                        "publish what the prefix cache keeps there, by ZeroMQ in vLLM's form, for routers that send a "
                        "request where its prompt is kept; whoever reaches it can read the tokens of prompts" },
    [OPT_KV_EVENTS_REPLAY] = { "kv-events-replay", 0, OPTION_TEXT, true, ON(CMD_SERVE), "tcp://HOST:PORT", 1, 255, NULL,
                               "give events of --kv-events again there, from a sequence number on" },
    [OPT_KV_EVENTS_TOPIC] = { "kv-events-topic", 0, OPTION_TEXT, true, ON(CMD_SERVE), "TEXT", 0, 400, NULL,
                              "topic of events, which is empty unless it is given; llm-d wants kv@ADDRESS:PORT@MODEL, "
                              "the worker's address as its router knows it" },
    [OPT_MATRYOSHKA] = { "matryoshka", 0, OPTION_FLAG, true, ON(CMD_SERVE), NULL, 0, 1, NULL,
                         "the model's embeddings were trained so that the first numbers of one are an embedding, too: "
                         "requests may ask for so many dimensions" },
    [OPT_POOLING] = { "pooling", 0, OPTION_CHOICE, true, ON(CMD_SERVE) | ON(CMD_EMBED) | ON(CMD_PLAN),
                      "mean|first|last", 0, 0, NULL,
                      "of a model that generates, whose file does not say how: take the mean of all tokens' rows, the "
                      "first (others call it cls) or the last one as the embedding of a text" },
    [OPT_FAIRNESS_PREEMPT] = { "fairness-preempt", 0, OPTION_FLAG, true, ON(CMD_SERVE), NULL, 0, 1, NULL,
                               "let a request of high priority take the place of a lower one, which is computed again "
                               "later" },
    [OPT_FAIRNESS_HIGH_PRI] = { "fairness-high-pri", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 1000, "5",
                                "priority from which a request is one of high priority" },
    [OPT_FAIRNESS_TIMESLICE] = { "fairness-timeslice", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 1048576, "0",
                                 "tokens after which a request of low priority yields to waiting ones; 0 is never" },
    [OPT_OTLP] = { "otlp", 0, OPTION_TEXT, true, ON(CMD_SERVE), "URL", 8, 1024, NULL,
                   "send requests as traces of OpenTelemetry to this collector, http://HOST:4318 (OTLP/HTTP, JSON)" },
    [OPT_INSECURE] = { "insecure", 0, OPTION_FLAG, true, ON(CMD_SERVE), NULL, 0, 1, NULL,
                       "serve an address beyond this machine without keys: everybody who reaches it can use the "
                       "worker, and shut it down" },
    [OPT_POLICY_FILE] = { "policy-file", 0, OPTION_TEXT, true, ON(CMD_SERVE) | ON(CMD_ADMIN), "FILE", 1, 4000, NULL,
                          "API keys, roles, rates, guardrails: who has no key of FILE, nor a token, may only look at "
                          "probes; worker admin makes and changes it: with this flag the file itself, which no worker "
                          "may have open then" },
    [OPT_POLICY_PASSPHRASE] = { "policy-passphrase", 0, OPTION_TEXT, true, ON(CMD_SERVE) | ON(CMD_ADMIN), "TEXT", 8,
                                4096, NULL,
                                "passphrase of the policy's file, which is encrypted with it; by "
                                "WORKER_POLICY_PASSPHRASE or --config alone, since others can see a command line" },
    [OPT_POLICY_PASSPHRASE_FILE] = { "policy-passphrase-file", 0, OPTION_TEXT, true, ON(CMD_SERVE) | ON(CMD_ADMIN),
                                     "FILE", 1, 4096, NULL, "file that holds this passphrase" },
    [OPT_PREFIX_SHARE] = { "prefix-share", 0, OPTION_CHOICE, true, ON(CMD_SERVE), "key|tenant|global", 0, 0, "key",
                           "who shares the kept beginnings of prompts; whoever shares them can tell from times what "
                           "others asked" },
    [OPT_OPEN_METRICS] = { "open-metrics", 0, OPTION_FLAG, true, ON(CMD_SERVE), NULL, 0, 1, NULL,
                           "show /metrics to everybody" },
    [OPT_OIDC_ISSUER] = { "oidc-issuer", 0, OPTION_TEXT, true, ON(CMD_SERVE), "URL", 9, 1000, NULL,
                          "take tokens of this OpenID Connect issuer, https://..., exactly as they name it; what they "
                          "may do is said by roles of the policy" },
    [OPT_OIDC_AUDIENCE] = { "oidc-audience", 0, OPTION_TEXT, true, ON(CMD_SERVE), "NAME", 1, 255, NULL,
                            "audience that its tokens must be for" },
    [OPT_OIDC_CA] = { "oidc-ca", 0, OPTION_TEXT, true, ON(CMD_SERVE), "FILE", 1, 4096, NULL,
                      "certificates (PEM) that its https may have, instead of the system's" },
    [OPT_OIDC_CLIENT] = { "oidc-client", 0, OPTION_LIST, false, ON(CMD_SERVE), "ID", 0, 16, NULL,
                          "take tokens of this client (azp, client_id) and no other; may be repeated" },
    [OPT_OIDC_TYPE] = { "oidc-type", 0, OPTION_TEXT, true, ON(CMD_SERVE), "TYPE", 1, 64, NULL,
                        "type that tokens must say, such as at+jwt" },
    [OPT_OIDC_ROLES] = { "oidc-roles", 0, OPTION_TEXT, true, ON(CMD_SERVE), "CLAIM", 1, 255, "roles",
                         "claim that has a token's roles, with dots for members: realm_access.roles" },
    [OPT_AUDIT_LOG] = { "audit-log", 0, OPTION_TEXT, true, ON(CMD_SERVE), "FILE", 1, 4000, NULL,
                        "write down in FILE who did what, a line of JSON each, chained so that a change shows (worker "
                        "audit verify); texts by keyed digest alone" },
    [OPT_AUDIT_REQUIRED] = { "audit-required", 0, OPTION_FLAG, true, ON(CMD_SERVE), NULL, 0, 1, NULL,
                             "generate nothing whose request cannot be written down first (AUDIT_FAILED)" },
    [OPT_AUDIT_SYNC] = { "audit-sync", 0, OPTION_FLAG, true, ON(CMD_SERVE), NULL, 0, 1, NULL,
                         "have each line on the disk before its request is answered" },
    [OPT_AUDIT_RAW] = { "audit-raw", 0, OPTION_FLAG, true, ON(CMD_SERVE), NULL, 0, 1, NULL,
                        "write down prompts and answers themselves, not their keyed digests alone" },
    [OPT_AUDIT_ROTATE] = { "audit-rotate-mb", 0, OPTION_INTEGER, true, ON(CMD_SERVE), "N", 0, 1048576, "0",
                           "begin a new file after N mebibytes; 0 is never" },
    [OPT_AUDIT_SIGNING_KEY] = { "audit-signing-key", 0, OPTION_TEXT, true, ON(CMD_SERVE), "FILE", 1, 4096, NULL,
                                "Ed25519 key (PEM) that signs checkpoints of that log" },
    [OPT_AUDIT_KEY] = { "audit-key", 0, OPTION_TEXT, true, TEXTS | ON(CMD_SERVE), "KEY|@FILE", 0, 4096, NULL,
                        "key of the digests in events (prompt_hmac, HMAC-SHA256) and of --audit-log's chain, 16 to "
                        "4096 "
                        "bytes, or the file that holds it; when not given, a random one of the process, or with "
                        "--audit-log that in FILE.key, which is made" },
    [OPT_PLAIN_SHA256] = { "plain-sha256", 0, OPTION_FLAG, true, TEXTS | ON(CMD_SERVE), NULL, 0, 1, NULL,
                           "add prompt_sha256 to events: whoever reads them can then test guesses of short prompts" },
    [OPT_URL] = { "url", 'u', OPTION_TEXT, true, ASKS, "URL", 8, 2048, "http://127.0.0.1:7531",
                  "the worker to talk to" },
    [OPT_SERVED_URL] = { "url", 'u', OPTION_TEXT, true, EITHER, "URL", 8, 2048, NULL,
                         "the worker to talk to, http://HOST:PORT or https://HOST:PORT; without it a model in this "
                         "process is asked (--model)" },
    [OPT_API_KEY] = { "api-key", 0, OPTION_TEXT, true, ASKS | EITHER, "KEY", 1, 16384, NULL,
                      "key or token with the scope that is needed; by WORKER_API_KEY or --config alone, since others "
                      "can see a "
                      "command line" },
    [OPT_API_KEY_FILE] = { "api-key-file", 0, OPTION_TEXT, true, ASKS | EITHER, "FILE", 1, 4096, NULL,
                           "file that holds this key" },
    [OPT_CA] = { "ca", 0, OPTION_TEXT, true, ASKS | EITHER, "FILE", 1, 4096, NULL,
                 "certificates (PEM) that the worker's https may have, instead of the system's" },
    [OPT_HUB_CA] = { "ca", 0, OPTION_TEXT, false, ON(CMD_PULL), "FILE", 1, 4095, NULL,
                     "certificates (PEM) that the hub's https may have, instead of the system's" },
    [OPT_BODY] = { "body", 0, OPTION_TEXT, false, ON(CMD_ADMIN), "FILE", 1, 4096, NULL,
                   "JSON object to send; - is standard input" },
    [OPT_SET] = { "set", 0, OPTION_LIST, false, ON(CMD_ADMIN), "NAME=VALUE", 0, 64, NULL,
                  "a member of the object to send: VALUE is JSON, or else a text; dots name members of members, and "
                  "several values with commas between are a list where one is wanted; may be repeated" },
    [OPT_KEY_FILE] = { "key-file", 0, OPTION_TEXT, false, ON(CMD_AUDIT), "FILE", 1, 4096, NULL,
                       "file with the key of the audit log; without it FILE.key beside one of the files" },
    [OPT_PUBLIC_KEY] = { "public-key", 0, OPTION_TEXT, false, ON(CMD_AUDIT), "FILE", 1, 4096, NULL,
                         "PEM file with an Ed25519 public key: every checkpoint must be signed with its private key" },
    [OPT_CONFIG] = { "config", 0, OPTION_TEXT, true, EVERY, "FILE", 1, 4096, NULL,
                     "file with lines of key = value, for what neither flag nor environment gives; keys of other "
                     "commands are checked and passed over" },
    [OPT_JSON] = { "json", 'j', OPTION_FLAG, false,
                   ON(CMD_INSPECT) | ON(CMD_PLAN) | ON(CMD_CAPABILITIES) | ON(CMD_PLUGIN) | ON(CMD_BENCH) |
                       ON(CMD_VERIFY) | ON(CMD_AUDIT) | ON(CMD_STATUS) | ON(CMD_JOBS) | ON(CMD_CANCEL) |
                       ON(CMD_MODELS) | ON(CMD_PULL) | ON(CMD_LIST) | ON(CMD_DOCTOR),
                   NULL, 0, 1, NULL, "print JSON" },
    [OPT_PLUGIN_DIR] = { "plugin-dir", 0, OPTION_LIST, false, PLUGINS, "DIR", 0, 16, NULL,
                         "look for plugins in DIR first; may be repeated; WORKER_PLUGIN_PATH (separated by colons) "
                         "comes next, then the installed ones" },
    [OPT_PREFER] = { "prefer", 0, OPTION_LIST, false, PLUGINS, "CLAIM=ID", 0, 64, NULL,
                     "where two plugins claim the same, take plugin ID: ggml:12=org.example.q4k or "
                     "arch:llama=org.example.llama; may be repeated" },
    [OPT_PLUGIN_OPTION] = { "plugin-option", 0, OPTION_LIST, false, PLUGINS, "ID.KEY=VALUE", 0, 64, NULL,
                            "an option of plugin ID, as its documentation has it; may be repeated; one that no plugin "
                            "asks for is refused" },
    [OPT_PLUGIN_DIGEST] = { "plugin-digest", 0, OPTION_TEXT, true, PLUGINS, "FILE", 1, 4096, NULL,
                            "map no plugin whose SHA-256 is not in FILE, which has lines as sha256sum writes them" },
    [OPT_PLUGIN_ID] = { "id", 0, OPTION_TEXT, false, ON(CMD_PLUGIN), "ID", 1, 63, NULL,
                        "id of the plugin that new writes: a domain of yours, reversed, and a name; without it "
                        "org.example.NAME" },
    [OPT_LIST] = { "list", 0, OPTION_FLAG, false, ON(CMD_PLUGIN), NULL, 0, 1, NULL,
                   "print the ids of all checks, with the rule that each is about" },
    [OPT_ONLY] = { "only", 0, OPTION_LIST, false, ON(CMD_PLUGIN), "ID", 0, 64, NULL,
                   "of check, run this one alone; may be repeated" },
    [OPT_LOG] = { "log", 0, OPTION_CHOICE, true, EVERY, "plain|json", 0, 0, NULL,
                  "how events are written to standard error: json has all of them, one line each, plain warnings and "
                  "errors; plain when not given, but json of serve where standard error is no terminal" },
    [OPT_HELP] = { "help", 'h', OPTION_FLAG, false, EVERY, NULL, 0, 1, NULL, "print this and exit" },
};

const struct option_key option_keys[] = {
    { OPT_FAIRNESS_PREEMPT, "scheduler.fairness.enable_preemption" },
    { OPT_FAIRNESS_HIGH_PRI, "scheduler.fairness.high_priority_threshold" },
    { OPT_FAIRNESS_TIMESLICE, "scheduler.fairness.max_timeslice_tokens" },
    { OPT_FLASH_ATTENTION, "runtime.cuda.flash_attention.enabled" },
    { OPT_FLASH_TILE, "runtime.cuda.flash_attention.tile_size" },
    { OPT_TLS_CERT, "server.tls.cert" },
    { OPT_TLS_KEY, "server.tls.key" },
    { OPT_TLS_CLIENT_CA, "server.tls.client_ca" },
    { OPT_COUNT, NULL },
};

const struct command_def command_table[CMD_COUNT] = {
    [CMD_RUN] = { "run", "", 0, 0, "generate text",
                  "Text streams to standard output as whole characters; a terminal is shown control characters (^[) "
                  "and obeys none. A line with token counts, speed, seed and device follows on standard error. "
                  "The same seed gives the same tokens. Ctrl-C stops cleanly: the line is still printed and the exit "
                  "status is 130." },
    [CMD_COMPLETE] = { "complete", "[PROMPT]", 0, 1, "continue a text, by a model here or by a running worker",
                       "The text goes on as it is, without a chat template: PROMPT, or --file, or standard input. With "
                       "--url a running worker continues it, else the model of --model in this process. What comes "
                       "streams to standard output; a line with token counts, seed and finish reason follows on "
                       "standard error. Ctrl-C stops cleanly: a worker cancels the job, the line is still printed and "
                       "the exit status is 130." },
    [CMD_CHAT] = { "chat", "", 0, 0, "talk with a model here or with a running worker",
                   "With --url a running worker answers, else the model of --model in this process. Each line is a "
                   "message; the conversation goes on until Ctrl-D or /quit, and /help shows the other commands: "
                   "/system, /tools, /save, /load, /clear. Answers stream, reasoning and calls of functions dim, "
                   "but not with NO_COLOR; the result of a call is what is typed next. Ctrl-C ends an answer, not the "
                   "program. Without a terminal lines are read from standard input, answers and calls are written "
                   "without reasoning, and the exit status is that of the first failure." },
    [CMD_RENDER] = { "render", "", 0, 0, "show the prompt that a chat template makes of a conversation",
                     "Prints the prompt and not a byte more, as /v1/chat/completions would make it, as ids or with the "
                     "origin of every byte: control tokens are read in what the template wrote alone. Messages are "
                     "brought into the shape that the template takes, which is found out by trying it; --as-is and "
                     "--context leave them as they are. The model's file may hold a vocabulary alone. An error of the "
                     "template is one line on standard error, with line and column." },
    [CMD_TOKENIZE] = { "tokenize", "TEXT", 0, 1, "turn text into token ids",
                       "Prints the ids on one line. The model's file may hold a vocabulary alone." },
    [CMD_DETOKENIZE] = { "detokenize", "ID...", 1, INT32_MAX, "turn token ids into text",
                         "Prints the text of the ids and nothing else." },
    [CMD_SCORE] = { "score", "", 0, 0, "measure how well a model predicts a text",
                    "Prints the perplexity as JSON: every token but the first is predicted from those before it. A "
                    "text longer than the context is "
                    "scored in windows of that length." },
    [CMD_EMBED] = { "embed", "[TEXT...]", 0, INT32_MAX, "make embeddings of texts, or a reranker's scores",
                    "Prints a line of JSON for each TEXT, or for each line of --file or of standard input that is not "
                    "empty: the embedding as the model's file says, brought to length 1; of a reranker the scores of "
                    "the text for --query, as the model gives them." },
    [CMD_INSPECT] = { "inspect", "FILE", 1, 1, "show what is in a model's file",
                      "Shows metadata, tensor types and what the model asks of a worker (its Model Capability "
                      "Descriptor). Reads no weights." },
    [CMD_PLAN] = { "plan", "FILE", 1, 1, "say what a model needs before loading it",
                   "Prints the exact bytes by kind, whether they fit, and each capability that is missing. Exit status "
                   "0 means that the model can run." },
    [CMD_CAPABILITIES] = { "capabilities", "", 0, 0, "show what this worker can run",
                           "Shows what all plugins found and the devices serve together (the Engine Capability "
                           "Profile)." },
    [CMD_PLUGIN] = { "plugin", "list | info FILE | check FILE | check --list | new arch|quant NAME", 1, 3,
                     "show plugins, write new ones",
                     "list shows every plugin found, shadowed or refused, and why. info reads one file's note. Neither "
                     "runs any code of a plugin; check does: it holds one file to the rules of the SDK, each in a "
                     "process of its own; it fails if one of them is broken. Of an architecture it records --model, "
                     "too. new writes the folder "
                     "NAME "
                     "with the source of a plugin for an architecture or a quantization format, which builds at once "
                     "and whose tests run it." },
    [CMD_QUANTIZE] = { "quantize", "IN OUT TYPE", 3, 3, "write a model in another encoding",
                       "TYPE is a mixture, a type for each role of matrix as other programs mix them (F32 F16 BF16 "
                       "Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 Q3_K_L Q3_K_M Q3_K_S Q2_K Q2_K_S "
                       "IQ4_NL IQ4_XS IQ3_M IQ3_S IQ3_XS IQ3_XXS TQ2_0 TQ1_0; only with --imatrix IQ2_M IQ2_S IQ2_XS "
                       "IQ2_XXS IQ1_M IQ1_S; MXFP4_MOE: experts as MXFP4, the rest as Q8_0), or any other type that a "
                       "plugin serves (Q3_K, Q4_K, NVFP4, ...) for all of them; what llama.cpp calls Q3_K, Q4_K and "
                       "Q5_K is Q3_K_M, Q4_K_M and Q5_K_M here. A matrix whose rows do not divide into "
                       "blocks of 256 becomes one of blocks of 32: of the head and of Q6_K Q8_0, of Q4_K Q5_0, "
                       "of Q5_K Q5_1, of TQ Q4_0, of the others IQ4_NL. OUT appears whole or not at all." },
    [CMD_IMATRIX] = { "imatrix", "", 0, 0, "measure which columns of a model's matrices matter",
                      "Reads a text (--file, --text or --ids) and writes to --out how large the values are that each "
                      "column of each matrix, of each expert, is multiplied with: what worker quantize --imatrix "
                      "weighs "
                      "errors by. The text is cut into windows of --context tokens, 512 when not given. Some hundred "
                      "windows of text like that of the model's use are enough. Computes on the CPU, from a model of "
                      "any format; better from one that is not quantized." },
    [CMD_VERIFY] = { "verify", "", 0, 0, "prove that a device holds what the model's file does",
                     "Loads the model, waits until it is sealed, checks that every byte lies in the GPU's own memory, "
                     "reads the weights back, undoes their re-ordering and "
                     "compares their SHA-256 with the file's. Prints the handle of the sealed weights. With --device "
                     "cpu, where weights stay in the file, it prints their SHA-256, as --digest demands it." },
    [CMD_BENCH] = { "bench", "", 0, 0, "measure speed",
                    "Measures prefill and decode with sampling, and in the same run how fast the GPU, or as many "
                    "threads, read memory: decode's share of that is the figure to look at." },
    [CMD_DEBUG] = { "debug", "tap | tape | kernels", 1, 1, "look inside a forward pass",
                    "tape prints the recorded operations and launches of a model. tap runs a text and writes values of "
                    "the pass as .npy files with an index.json. kernels prints which CUDA kernel each product of the "
                    "model gets at 1 to 64 rows, how it is launched, and why not by a kernel of higher priority; it "
                    "needs no GPU." },
    [CMD_GRAMMAR] = { "grammar", "", 0, 0, "check what constrained output would be constrained to",
                      "Compiles a JSON Schema, a grammar or a regular expression and says what it holds, or why it is "
                      "refused (exit status 1). With --accepts the exit status is 0 whether the text fits or not. With "
                      "--model the text is followed token by token, as generation would; else byte by byte. The "
                      "model's file may hold a vocabulary alone." },
    [CMD_AUDIT] = { "audit", "verify FILE...", 2, INT32_MAX, "check whether an audit log was changed",
                    "Reads the files of an audit log, all of one chain or the last of them, in any order, and says how "
                    "many lines and checkpoints are as they were written, and of the first that is not, whether it "
                    "was edited, removed, inserted, moved or cut off; then the exit status is 1. FILE.head beside the "
                    "last file says where the log ended. A last line that a crash cut short is no change." },
    [CMD_SERVE] = { "serve", "", 0, 0, "serve a model over HTTP",
                    "Listens at once and loads the model meanwhile: /livez answers from the first moment, /readyz when "
                    "work can be done. Without --model it serves the embedded model; with "
                    "--wait-for-commit it waits for one. Prints its address and a line to try when it is ready. "
                    "SIGTERM and Ctrl-C let running requests finish; a second one ends it at once. "
                    "worker --worker-id UUID --model FILE ..., without the word serve, is the same. --gpu-device alone "
                    "means --device cuda. In a file of --config the key of an option is its name "
                    "with _ for -, those of the fairness are scheduler.fairness.enable_preemption, "
                    "high_priority_threshold and max_timeslice_tokens, those of attention "
                    "runtime.cuda.flash_attention.enabled and tile_size." },
    [CMD_ADMIN] = { "admin",
                    "api-keys list | api-keys create|show|update|rotate|delete ID | rate-limits show|replace | "
                    "guardrails show|replace | roles show|replace | scheduler show|replace | models show | audit show",
                    2, 3, "keys, rates, guardrails, roles and the scheduler",
                    "Talks to a running worker (--url), or with --policy-file works on the policy's file, which no "
                    "worker may have open then: so the first key is made. Answers are JSON; a new secret is shown "
                    "once. What is sent is --body, and --set on top of it: worker admin api-keys create alice --set "
                    "scopes=inference --set limits.tokens_per_minute=60000. A key has name, tenant, scopes (inference, "
                    "embed, metrics, admin:read, admin), expires, disabled, limits and max_priority; rotate takes "
                    "grace_seconds. update changes what is named, replace all of it. docs/http.md has every member." },
    [CMD_STATUS] = { "status", "", 0, 0, "show how a running worker is",
                     "Asks /health. Exit status 0 means that the worker can take jobs; otherwise the last line says "
                     "why not, with NOT_READY." },
    [CMD_JOBS] = { "jobs", "", 0, 0, "list the jobs of a running worker",
                   "Those that wait or run, then the last that have ended; with a key, those of the key, or with the "
                   "scope admin:read all." },
    [CMD_CANCEL] = { "cancel", "JOB", 1, 1, "cancel a job of a running worker",
                     "JOB is an id as worker jobs shows it, or the id of an answer of /v1. Exit status 1 means that no "
                     "such job is queued or running." },
    [CMD_MODELS] = { "models", "", 0, 0, "list the models of a running worker", "Asks /v1/models." },
    [CMD_METRICS] = { "metrics", "", 0, 0, "print the metrics of a running worker",
                      "Prometheus' text format, as /metrics gives it; docs/metrics.md explains each." },
    [CMD_PULL] = { "pull", "hf:ORG/NAME[:QUANT|/FILE]", 1, 1, "fetch a model from Hugging Face's hub",
                   "Fetches the one GGUF model of a repository, the one in the quantization QUANT, or FILE, with all "
                   "files of a split one, into ORG/NAME of the model folder, where --model finds it by the same words. "
                   "What is broken off goes on where it was: the same command again. A file gets its name when its "
                   "size and SHA-256 are those that the hub gives. Needed for models that are not public: a token in "
                   "HF_TOKEN. HF_ENDPOINT is the address of another hub. Ctrl-C stops (exit status 130) and keeps what "
                   "came." },
    [CMD_LIST] = { "list", "", 0, 0, "list the models of this machine, what runs here and how fast",
                   "Shows what is in the model folder, among Ollama's models and in the hub's cache, by the names that "
                   "--model takes. Each file's header is planned as worker plan does; nothing is loaded. TOK/S is how "
                   "often the processor's memory, measured now, gives what a token reads: about what worker bench "
                   "measures; of a GPU it is not told." },
    [CMD_DOCTOR] = { "doctor", "", 0, 0, "say what is missing on this machine, and the command that mends it",
                     "Looks at processor, memory, GPU, driver, CUDA module, plugins, limits, port, model folder and "
                     "models; changes nothing. Each finding is ok, a note, advice (it works, but something is missing) "
                     "or a fault, with the command that mends it below. Exit status 0 means that a model can be "
                     "served on --device." },
    [CMD_HELP] = { "help", "[COMMAND]", 0, 1, "explain a command", "Without COMMAND: an overview." },
};
