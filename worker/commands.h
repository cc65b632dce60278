/* commands.h: one function for each subcommand; each returns the process's exit status and has closed whatever it
 * opened. */
#ifndef WORKER_COMMANDS_H
#define WORKER_COMMANDS_H

#include "options.h"

int command_run(const struct options *o); /* also complete's, of a model in this process */
int command_complete(const struct options *o);
int command_chat(const struct options *o);
int command_render(const struct options *o);
int command_tokenize(const struct options *o);
int command_detokenize(const struct options *o);
int command_score(const struct options *o);
int command_embed(const struct options *o);
int command_inspect(const struct options *o);
int command_plan(const struct options *o);
int command_capabilities(const struct options *o);
int command_plugin(const struct options *o);
int plugin_new(const struct options *o); /* worker plugin new */
int command_quantize(const struct options *o);
int command_imatrix(const struct options *o);
int command_verify(const struct options *o);
int command_bench(const struct options *o);
int command_debug(const struct options *o);
int command_grammar(const struct options *o);
int command_audit(const struct options *o);
int command_serve(const struct options *o);
int command_admin(const struct options *o);
int command_status(const struct options *o);
int command_jobs(const struct options *o);
int command_cancel(const struct options *o);
int command_models(const struct options *o);
int command_metrics(const struct options *o);
int command_pull(const struct options *o);
int command_list(const struct options *o);
int command_doctor(const struct options *o);

#endif
