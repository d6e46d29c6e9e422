/* papers.h - what the claims of papers.c and tools.c share. */
#ifndef EVIDENCE_PAPERS_H
#define EVIDENCE_PAPERS_H

#include "../../examples/tools/text.h"
#include "evidence.h"

/* Sets d_ff, an even number, so that the model has as many numbers as the baseline of its claim, or as
   few fewer as possible. Up to a hundredth apart it stays, and with it the start that both share.
   Embeddings of tokens and positions, of which each token reads a row, do not count. *apart (or NULL):
   numbers more than the baseline's, then. */
int papers_match(const evidence_run *run, cmha_context *ctx, cmha_model_config *config, double *apart);

/* Runs a program that lies beside this one, to its end: arguments[0] is its name, NULL ends them. *output, of
   malloc, gets what it prints. 0 where it is not there or fails; the error is then its last line. */
int papers_tool(const evidence_run *run, const char *const *arguments, char **output);
/* The path of a file that any run can make again, in run->work. */
int papers_work(const evidence_run *run, const char *name, char path[1024]);
/* Likewise, its name with a hash of what it depends on. */
int papers_work_of(const evidence_run *run, char path[1024], const char *name, const char *depends,
                   const char *ending);
/* Is `path` there? Else a name of one's own for a file that papers_keep then renames to it. */
int papers_made(const char *path, char own[1200]);
int papers_keep(const evidence_run *run, const char *own, const char *path);

#endif
