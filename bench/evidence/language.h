/* language.h - what the claims of language.c and primary.c share. */
#ifndef EVIDENCE_LANGUAGE_H
#define EVIDENCE_LANGUAGE_H

#include "evidence.h"

/* Trains a language model at a length and measures bits a byte at positions up to eight times that: p128 to
   p2048, with other frequencies ntk.p128 and so on; `far` is p2048, with those that long.scaling names. */
int language_longer_run(const evidence_run *run, evidence_result *result);

#endif
