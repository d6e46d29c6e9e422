/* minutes.h - how many steps of a training fit into a time, which people have instead of steps. Include it
   after ranks.h. */
#ifndef MINUTES_H
#define MINUTES_H

#include "lessons.h"

/* Returns how many steps take the minutes that an option says, with a validation each eval_every and one at
   the end, prints that unless it is to be quiet, and opens the trainer for as many. Some are tried for this,
   and undone. */
static inline size_t minutes_steps(const setting *option, int quiet, cmha_trainer *trainer, lessons *from) {
    cmha_model *model = trainer->model;
    cmha_trainer_config config = trainer->config;
    const double minutes = number_of(option, 0, 1e6);
    const size_t bytes = model->parameters.size * sizeof *model->parameters.data;
    const double begin = seconds(), enough = minutes * 60 / 50 < 3 ? minutes * 60 / 50 : 3;
    cmha_real *before = (cmha_real *)text_memory(NULL, bytes, 1, 1);
    if (!before) complain(1, "no memory to try a step", "");
    memcpy(before, model->parameters.data, bytes);
    double loss, started = begin, step = 0, look;
    for (int n = 0; n < 3 || seconds() - started < enough; n++) { /* the first one warms up */
        cmha_status status = lessons_step(from, trainer, &ranks, &loss);
        if (status != CMHA_ERR_NOT_FINITE) check(status);
        if (!n) started = seconds();
        else step = (seconds() - started) / n;
    }
    started = seconds();
    check(lessons_loss(from, trainer, &loss));
    look = seconds() - started;
    cmha_trainer_close(trainer);
    memcpy(model->parameters.data, before, bytes), free(before);
    double left = minutes * 60 - (seconds() - begin) - look, each = step + look / (double)config.eval_every;
    config.steps = left > each ? (size_t)(left / each) : 1;
    check(cmha_trainer_init(trainer, model, &config));
    if (!quiet) printf("%g minutes are --steps %zu\n", minutes, config.steps);
    return config.steps;
}

#endif
