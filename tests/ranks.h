/* Ranks that train one model (cmha_trainer_share), without MPI: each is a thread with a context, model and
   trainer of its own, and they add up in their order, so that a run is the same every time. What holds: N
   ranks with a batch of B learn what one learns with N x B, to rounding; what ranks know of each other is the
   same to the bit; a failure of one is known to all in the same call; and no message is sent that nobody
   waits for. tests/test_ranks.c is all of this in float, tests/grad_ranks.c in double. */
#include "system.h"
#include "check.h"

#if defined(_WIN32) || defined(__EMSCRIPTEN__)

int main(void) {
    printf("SKIP this test needs POSIX threads\n0 passed, 0 failed, 1 skipped\n");
    return 0;
}

#else

#include <pthread.h>
#include <unistd.h>

enum { RANKS = 4, STEPS = 50, LENGTH = 6, LONG = 2 * LENGTH, ROWS = 8, VOCABULARY = 19, STREAM = 400,
       DOCUMENTS = 20, MESSAGE = 64 };

/* 6 under a sanitizer */
static size_t steps_of(void) { return check_quick() ? 6 : STEPS; }

/* ------------------------------------------ what is trained ------------------------------------------- */

typedef enum data {
    TEXT,  /* cmha_trainer_step on a stream */
    BATCH, /* cmha_trainer_step_batch on batches of its own, with what the model has heads for */
    OWN    /* cmha_trainer_apply after an objective of the program's own */
} data;

typedef struct row {
    const char *model, *training; /* a kind and fields; fields */
    data from;
    const char *frozen;    /* parameters that are, or NULL */
    size_t threads, ranks; /* of the first rank, the others have one, 0 = 1; 0 = 2 */
    int overlaps;          /* sums while the backward goes on are tried, too */
} row;

/* Learning that does not magnify rounding: AdamW divides by the root of the squares, which for gradients near
   rounding itself would make anything of them */
#define SMOOTH "adam_eps=1e-2 lr=1e-2 warmup=0.1 "

static const row rows[] = {
    {"cmha dropout=0.1 attention_dropout=0.1", "accumulate=2", TEXT, NULL, 0, 0, 1},
    {"cmha n_kv_heads=2 window=5 norm=rmsnorm activation=swiglu attention_bias=1 tied=0 head_bias=1",
     "clip=0.1 clip_mode=tensors", TEXT, NULL, 0, 4, 1},
    {"cmha layout=half frequency=literal score_scale=0.3 placement=post residual_scale=0.5 "
     "activation=gelu_tanh",
     "clip=0.1", TEXT, NULL, 0, 0, 0},
    {"cmha delta_init=paper pcl_weight=0.1 activation=gelu_tanh", "", TEXT, NULL, 0, 3, 0},
    {"cmha-shared pcl_weight=0.1 pcl_adapted=1 init=xavier", "accumulate=2 lr=3e-3", TEXT, NULL, 2, 0, 0},
    {"cmha recompute=1 dropout=0.1 embedding_scale=1", "", TEXT, NULL, 0, 0, 1},
    {"cmha-fixed lora_rank=2 lora_on=wq,ffn.*", "lr=5e-2", TEXT, NULL, 0, 0, 1},
    {"cmha dropout=0.1", "", TEXT, "tok_emb.*,*.ln1.*,blocks.1.*", 0, 3, 1},
    {"rope n_kv_heads=1 output_bias=1 ffn_bias=0", "", TEXT, NULL, 0, 0, 0},
    {"alibi n_kv_heads=2 window=7 activation=relu", "", TEXT, NULL, 0, 0, 0},
    {"dot position=multifreq", "", TEXT, NULL, 0, 0, 1},
    {"rope qk_norm=rms_gain score_softcap=3 logit_softcap=5 norm=rmsnorm_one_plus activation=relu2", "",
     TEXT, NULL, 0, 0, 1},
    {"rope parallel=norm value_residual=1 residual_mix=1 n_kv_heads=2 z_loss=0.1", "ema=0.9", TEXT, NULL, 0,
     0, 1},
    {"rope placement=sandwich layer_kinds=lgn window=4 local_base=20 qk_norm=rms_whole activation=geglu_erf "
     "head_scale=0.5 embedding_factor=2 dropout=0.1", "", TEXT, NULL, 0, 0, 1},
    {"pope n_kv_heads=2 window=5 beta_uniform=1", "accumulate=2", TEXT, NULL, 0, 4, 1},
    {"ropepp n_kv_heads=1 attention_dropout=0.1", "", TEXT, NULL, 2, 0, 0},
    {"rope causal=0 head_transform=1 dropout=0.1", "accumulate=3 mask_rate=0.3", TEXT, NULL, 0, 4, 1},
    {"dot+learned causal=0 embedding_norm=1", "mask_rate=0.05", TEXT, NULL, 0, 4, 1},
    {"cope-phase cope_repo_scale=1 cope_imag=learned placement=post", "", TEXT, NULL, 0, 0, 1},
    {"cope-hybrid cope_imag=sin_cos cope_gamma=0.5 cope_scale=3", "lr=3e-3", TEXT, NULL, 0, 0, 0},
    {"cope-hybrid_norm cope_max_grad=1 dropout=0.1", "", TEXT, NULL, 0, 0, 1},
    {"cope-hybrid_norm causal=0 cope_max=head attention_dropout=0.1", "", TEXT, NULL, 0, 0, 0},
    {"cope-linear causal=0", "", TEXT, NULL, 0, 0, 0},
    {"mobius mobius_mode=full mobius_softmax=real mobius_wiring=stacked mobius_init=ortho",
     "clip=0.05 clip_mode=global lr=3e-3", TEXT, NULL, 0, 0, 1},
    {"mobius mobius_mode=literal mobius_softmax=yang8 mobius_quotient=unit", "", TEXT, NULL, 0, 0, 0},
    {"mobius mobius_heads=4 mobius_softmax=ri_split mobius_hermitian=1 mobius_wiring=alternating", "", TEXT,
     NULL, 0, 0, 0},
    {"mobius+rope mobius_softmax=abs mobius_wiring=top mobius_eps=0.1", "", TEXT, NULL, 0, 0, 1},
    {"mobius causal=0 recompute=1 dropout=0.1 attention_dropout=0.1", "lr=3e-3", TEXT, NULL, 0, 3, 0},
    {"angular real_heads=1 imag_heads=1 complex_norm=crms low_rank=2 complex_residual=unit",
     "clip=0.1 clip_mode=values lr=3e-3", TEXT, NULL, 0, 0, 1},
    {"angular complex_norm=whiten state_gelu=1 attention_dropout=0.1 dropout=0.1", "lr=1e-3", TEXT, NULL, 0,
     0, 0},
    {"angular crat_attention=dot complex_norm=split state_rotation=0 phase_reg=1e-1 mag_reg=1e-1",
     "accumulate=2 lr=3e-3", TEXT, NULL, 0, 3, 0},
    {"angular causal=0 phase_reg=1e-1 mag_reg=1e-2 recompute=1", "lr=3e-3", TEXT, NULL, 2, 0, 0},
    {"angular-linear complex_residual=free experts=3 experts_top=1 balance=0.1 dropout=0.1", "lr=3e-3", TEXT,
     NULL, 0, 4, 1},
    {"crat balance=0.1 recompute=1", "accumulate=2 lr=3e-3", TEXT, NULL, 0, 3, 0},
    {"crat irw_layers=1 irw_queries=2 irw_top=3 irw_fusion=additive", "lr=3e-3", TEXT, NULL, 0, 0, 0},
    {"crat irw_layers=2 irw_from=1 irw_queries=2 irw_top=3 irw_raw=1 irw_width=5 irw_threshold=0.1",
     "lr=1e-3", TEXT, NULL, 0, 0, 1},
    {"alibi n_kv_heads=2 head_temperature=1", "", TEXT, NULL, 0, 3, 1},
    {"cope-hybrid head_temperature=1 cope_gamma_learned=1", "lr=3e-3", TEXT, NULL, 0, 0, 1},
    {"angular-atan head_temperature=1 real_heads=1", "lr=3e-3", TEXT, NULL, 0, 0, 0},
    {"lag lag_topk=4 lag_temp=0.7", "", TEXT, NULL, 0, 0, 1},
    {"rope causal=0 classes=3 token_types=2 dropout=0.1", "", BATCH, NULL, 0, 0, 0},
    {"rope causal=0 classes=3 pool=mean pooler=1", "", BATCH, NULL, 0, 4, 1},
    {"cmha causal=0 classes=1 pool=mean label_range=5", "", BATCH, NULL, 0, 3, 0},
    {"cmha values=2", "", BATCH, NULL, 0, 4, 0},
    {"cmha values=2 gaussian=1 dropout=0.1", "", BATCH, "value.*", 0, 3, 0},
    {"cmha tokens=0 vocabulary=0 features=3 values=2 gaussian=1", "", BATCH, NULL, 0, 0, 0},
    {"cmha features=3 complex_features=1 values=1 feature_norm=frame", "", BATCH, NULL, 0, 0, 1},
    {"cope-real features=2 complex_features=1 classes=3 causal=0 feature_norm=sequence", "", BATCH, NULL, 0,
     0, 0},
    {"crat tokens=0 vocabulary=0 features=3 complex_features=1 classes=3 balance=0.1", "", BATCH, NULL, 0, 4,
     1},
    {"crat phase_reg=1e-1 mag_reg=1e-1 balance=0.1 dropout=0.1", "lr=3e-3", BATCH, NULL, 0, 3, 0},
    {"cmha causal=0 pcl_weight=0.1 dropout=0.1", "", BATCH, NULL, 0, 4, 0},
    {"mobius causal=0", "", BATCH, NULL, 0, 3, 0},
    {"lag balance=0.1 experts=3", "", BATCH, NULL, 0, 0, 0},
    {"cmha dropout=0.1", "optimiser=muon lr=3e-3 accumulate=2", TEXT, NULL, 0, 3, 1},
    {"cmha lora_rank=2 n_kv_heads=2", "optimiser=muon momentum=0.9 nesterov=0", TEXT, NULL, 0, 0, 1},
    {"crat balance=0.1", "optimiser=muon update_scale=shape lr=1e-3", TEXT, "*.wo.*", 2, 3, 1},
    {"mobius", "optimiser=sgd lr=1e-2 schedule=wsd", BATCH, NULL, 0, 4, 0},
    {"cmha values=2", "", OWN, NULL, 0, 3, 0},
    {"crat causal=0 classes=3 balance=0.1 dropout=0.1", "lr=1e-3", OWN, NULL, 0, 3, 1},
    {"crat values=2", "clip=0.1 clip_mode=global", OWN, "*.router.*,state.*", 0, 4, 1},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* ------------------------------------------ where ranks meet ------------------------------------------ */

typedef struct place {
    pthread_mutex_t lock;
    pthread_cond_t all;
    size_t ranks, inside, turn;
    int torn; /* a rank has gone: whoever waits would wait for ever */
    const cmha_real *given[RANKS];
    size_t sizes[RANKS];
} place;

static void place_open(place *p, size_t ranks) {
    memset(p, 0, sizeof *p);
    p->ranks = ranks;
    pthread_mutex_init(&p->lock, NULL), pthread_cond_init(&p->all, NULL);
}

static void place_close(place *p) { pthread_mutex_destroy(&p->lock), pthread_cond_destroy(&p->all); }

/* 1: all ranks are here; 0: one has gone, and never will be */
static int place_meet(place *p) {
    size_t turn;
    int met;
    pthread_mutex_lock(&p->lock);
    turn = p->turn;
    if (++p->inside == p->ranks) p->inside = 0, p->turn++, pthread_cond_broadcast(&p->all);
    while (turn == p->turn && !p->torn) pthread_cond_wait(&p->all, &p->lock);
    met = turn != p->turn;
    pthread_mutex_unlock(&p->lock);
    return met;
}

static void place_leave(place *p) {
    pthread_mutex_lock(&p->lock);
    p->torn = 1, pthread_cond_broadcast(&p->all);
    pthread_mutex_unlock(&p->lock);
}

/* ----------------------------------------------- a rank ----------------------------------------------- */

/* What goes wrong in one step */
typedef enum fault { NOTHING, BAD_TOKEN, BAD_LABEL, SHORT_STREAM, NO_BATCH, TOO_MANY, NO_MEMORY, NAN_FEATURE,
                     INFINITE_VALUE, NAN_LABEL, NAN_GRADIENT, SUMS_FAIL, WAIT_FAILS, SKIPPED, COUNTED
} fault;

/* A sum that was begun: the numbers are elsewhere, and a poison in their place. */
typedef struct piece {
    cmha_real *values, *kept;
    size_t n;
} piece;

typedef struct life {
    /* what it is to do */
    const row *row;
    size_t rank, ranks, batch, threads, steps;
    place *place;                   /* NULL = alone, without a reduce */
    int overlaps;                   /* begin and wait */
    int large;                      /* blocks whose gradients are worth a sum of their own */
    fault fault;                    /* at step `when`, of `culprit` */
    size_t when, culprit, fails_at; /* SUMS_FAIL, NO_MEMORY: the number of the call */
    const char *resume, *save;      /* files: read before the first step; rank 0 writes, after `saves_at` */
    size_t saves_at;
    int reads_first; /* before it shares */
    /* what came out */
    double losses[STEPS], norms[STEPS], held_out;
    cmha_status statuses[STEPS], evaluated;
    uint64_t digests[STEPS], start; /* of parameters and moments, after each step and before */
    uint64_t settled[STEPS];        /* of what no sum of directions moves */
    size_t counts[STEPS];           /* trainer.step */
    char lines[STEPS][160], line[160];
    cmha_real *parameters, *moments;
    size_t size, learning, done; /* done: steps that were made */
    uint64_t use;                /* of experts: tokens */
    int hung, odd, uneven; /* waits in vain; messages of another size; sums of another than the others' */
    int touched, unsent;   /* numbers, of begun sums; of gradients that were not sent once a step */
    int allocated, leaks;
    int began, waits, sums;
    /* what it lives on */
    cmha_model model;
    cmha_trainer trainer;
    unsigned char *sent; /* [learning]: how often in this step */
    piece pieces[256];
    size_t n_pieces;
    cmha_real *sum; /* [room] */
    size_t room, calls; /* calls: of this step */
    int32_t ids[ROWS * LONG], targets[ROWS * LONG], types[ROWS * LONG];
    unsigned char mask[ROWS * LONG];
    cmha_real labels[ROWS], features[ROWS * LONG * 8], values[ROWS * LONG * 2];
} life;

/* Adds up what all ranks give into me->sum. */
static cmha_status meet(life *me, const cmha_real *values, size_t n) {
    place *p = me->place;
    p->given[me->rank] = values, p->sizes[me->rank] = n;
    if (!place_meet(p)) return me->hung++, CMHA_ERR_IO;
    for (size_t r = 0; r < p->ranks; r++) me->uneven += p->sizes[r] != n;
    if (!me->uneven)
        for (size_t i = 0; i < n; i++) {
            cmha_real sum = p->given[0][i];
            for (size_t r = 1; r < p->ranks; r++) sum += p->given[r][i];
            me->sum[i] = sum;
        }
    return place_meet(p) ? CMHA_OK : (me->hung++, CMHA_ERR_IO);
}

/* Notes that numbers of the gradient are sent; anything else must be a message. */
static void note(life *me, const cmha_real *values, size_t n) {
    const cmha_parameters *p = &me->model.parameters;
    me->sums++;
    if (values < p->grad || values + n > p->grad + p->learning) {
        me->odd += n != MESSAGE;
        return;
    }
    for (size_t i = 0; i < n; i++) me->sent[values - p->grad + (ptrdiff_t)i]++;
}

/* 1 = this call is to fail, on all ranks */
static int refused(life *me) {
    return me->fault == SUMS_FAIL && me->done == me->when && ++me->calls == me->fails_at;
}

static cmha_status reduce(void *user, cmha_real *values, size_t n) {
    life *me = (life *)user;
    note(me, values, n);
    if (me->n_pieces) me->touched++; /* between begin and wait */
    if (refused(me)) return CMHA_ERR_IO;
    cmha_status status = n > me->room ? CMHA_ERR_SHAPE : meet(me, values, n);
    if (!status) memcpy(values, me->sum, n * sizeof *values);
    return status;
}

/* Leaves a poison that every sum changes and that changes every sum, so that nobody touches it unseen. */
static cmha_status begin(void *user, cmha_real *values, size_t n) {
    life *me = (life *)user;
    note(me, values, n);
    if (refused(me)) return CMHA_ERR_IO;
    if (me->n_pieces == sizeof me->pieces / sizeof *me->pieces) return CMHA_ERR_OVERFLOW;
    piece *p = &me->pieces[me->n_pieces++];
    p->values = values, p->n = n, p->kept = (cmha_real *)check_alloc(n, sizeof *values);
    memcpy(p->kept, values, n * sizeof *values);
    for (size_t i = 0; i < n; i++) values[i] = (cmha_real)1e-30;
    me->began++;
    return CMHA_OK;
}

static cmha_status wait_for(void *user, int all) {
    life *me = (life *)user;
    cmha_status status = CMHA_OK;
    if (!all) return me->waits++, me->fault == WAIT_FAILS && me->done == me->when ? CMHA_ERR_IO : CMHA_OK;
    for (size_t k = 0; k < me->n_pieces; k++) {
        piece *p = &me->pieces[k];
        for (size_t i = 0; i < p->n; i++) me->touched += p->values[i] != (cmha_real)1e-30;
        if (!status) status = meet(me, p->kept, p->n);
        memcpy(p->values, me->sum, p->n * sizeof *p->values);
        free(p->kept);
    }
    me->n_pieces = 0;
    return refused(me) ? CMHA_ERR_IO : status;
}

static uint64_t digest_of(uint64_t d, const void *from, size_t bytes) {
    const unsigned char *at = (const unsigned char *)from;
    uint64_t word;
    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(&word, at, sizeof word);
        d = (d ^ word) * 0x100000001b3u, d ^= d >> 29;
    }
    for (; bytes > 0; bytes--) d = (d ^ *at++) * 0x100000001b3u;
    return d;
}

static uint64_t digest(const life *me) {
    const cmha_parameters *p = &me->model.parameters;
    return digest_of(digest_of(1, p->data, p->size * sizeof *p->data), p->moments,
                     p->work * sizeof *p->moments);
}

/* ------------------------------------ batches of the program's own ------------------------------------ */

/* Sequences of the whole batch at this step: all, then fewer and fewer, so that ranks have a part or none */
static size_t whole_batch(const life *me) {
    size_t all = me->ranks * me->batch;
    return me->row->from == OWN ? all : all - me->done % all;
}

/* Fills sequence i of the whole batch into this rank's row. */
static void fill_sequence(life *me, const cmha_model_config *c, size_t i, size_t to, size_t N) {
    cmha_rng rng = cmha_rng_make(77, (uint64_t)me->done * 1000 + i);
    size_t width = c->features * (c->complex_features ? 2 : 1), present = N - (i * 3 + me->done) % (N - 2);
    int silent = i >= 2 && me->done % 5 == 4; /* no target in it */
    for (size_t n = 0, at = to * N; n < N; n++, at++) {
        me->ids[at] = (int32_t)cmha_rng_below(&rng, VOCABULARY);
        me->mask[at] = n < present;
        me->types[at] = (int32_t)(n > N / 2);
        me->targets[at] = -1;
        if (!silent && n < present && cmha_rng_uniform(&rng) < (c->causal ? 0.8 : 0.3))
            me->targets[at] = (int32_t)((me->ids[at] + 1) % VOCABULARY);
        for (size_t k = 0; k < width; k++)
            me->features[at * width + k] = (cmha_real)(n < present ? cmha_rng_normal(&rng) : (double)NAN);
        for (size_t k = 0; k < c->values; k++) {
            double value = cmha_rng_normal(&rng) + 0.1 * (double)me->ids[at];
            int nothing = silent || n >= present || cmha_rng_uniform(&rng) < 0.3;
            me->values[at * c->values + k] = nothing ? (cmha_real)NAN : (cmha_real)value;
        }
    }
    me->labels[to] = (cmha_real)(c->classes == 1 ? cmha_rng_normal(&rng) : (double)cmha_rng_below(&rng, 3));
}

static cmha_batch make_batch(life *me, size_t N) {
    static const cmha_real weights[3] = {(cmha_real)0.5, 2, (cmha_real)1.25};
    const cmha_model_config *c = &me->model.config;
    size_t whole = whole_batch(me), first = me->rank * me->batch, count = 0;
    cmha_batch b;
    memset(&b, 0, sizeof b);
    for (; count < me->batch && first + count < whole; count++) fill_sequence(me, c, first + count, count, N);
    b.batch = count, b.length = N;
    b.ids = c->tokens ? me->ids : NULL, b.targets = me->targets, b.key_mask = me->mask;
    b.types = c->token_types ? me->types : NULL;
    b.features = c->features ? me->features : NULL, b.values = c->values ? me->values : NULL;
    b.labels = c->classes ? me->labels : NULL;
    b.class_weights = c->classes > 1 && c->pool == CMHA_POOL_MEAN ? weights : NULL;
    return b;
}

/* The squared error of values on a tape of one's own. Its mean is over this rank's sequences, as many as
   those of the others. */
static cmha_status squared_error(life *me, const cmha_batch *batch) {
    cmha_tape tape;
    cmha_batch b = *batch;
    cmha_status status = cmha_tape_init(&tape, me->model.context, 1);
    for (size_t i = 0; i < b.batch * LENGTH * me->model.config.values; i++)
        if (me->values[i] != me->values[i]) me->values[i] = 1;
    cmha_tensor *x = cmha_model_states(&me->model, &tape, &b, NULL);
    x = cmha_squared_error(&tape, cmha_model_values(&me->model, &tape, x), me->values);
    if (!status) status = cmha_tape_backward(&tape, x, 1 / (cmha_real)me->ranks);
    cmha_tape_close(&tape);
    return status;
}

static cmha_status own_objective(life *me, fault now, double *loss) {
    cmha_batch b = make_batch(me, LENGTH);
    cmha_status status;
    if (!me->done) cmha_parameters_zero_grad(&me->model.parameters);
    if (b.labels) status = cmha_model_gradient(&me->model, &b, 1, me->done, loss);
    else status = squared_error(me, &b);
    if (now == NAN_GRADIENT) me->model.parameters.grad[5] = (cmha_real)NAN;
    return status ? status : cmha_trainer_apply(&me->trainer, NULL);
}

/* ----------------------------------------- steps, and faults ------------------------------------------ */

static int32_t stream[STREAM], bad_stream[STREAM];
static cmha_real vectors[DOCUMENTS * 64];

static cmha_status text_step(life *me, fault now, double *loss) {
    cmha_tokens tokens = {stream, now == SHORT_STREAM ? 3 : 300, 4, NULL, 0, 0};
    if (now == BAD_TOKEN) tokens.data = bad_stream;
    return cmha_trainer_step(&me->trainer, &tokens, loss);
}

static cmha_status batch_step(life *me, check_heap *heap, fault now, double *loss) {
    int grows = me->fault == NO_MEMORY && me->done == me->when; /* to more than there is room for */
    size_t N = grows ? LONG : LENGTH;
    cmha_batch b = make_batch(me, N);
    cmha_status status;
    if (now == NO_MEMORY) heap->fail_at = heap->calls + me->fails_at;
    if (now == BAD_TOKEN) me->ids[1] = VOCABULARY;
    if (now == BAD_LABEL) me->labels[0] = 3;
    if (now == TOO_MANY) b.batch = 3;
    if (now == NAN_FEATURE) me->features[0] = (cmha_real)NAN;
    if (now == INFINITE_VALUE) me->values[0] = (cmha_real)INFINITY;
    if (now == NAN_LABEL) me->labels[0] = (cmha_real)NAN;
    status = cmha_trainer_step_batch(&me->trainer, now == NO_BATCH ? NULL : &b, loss);
    heap->fail_at = 0;
    return status;
}

/* A run to compare with leaves out the step of the fault, SKIPPED, or all of it but its count. */
static cmha_status step(life *me, check_heap *heap, double *loss) {
    fault now = me->done == me->when && me->rank == me->culprit ? me->fault : NOTHING;
    me->calls = 0;
    if (me->done == me->when && (me->fault == SKIPPED || me->fault == COUNTED)) {
        me->trainer.step += me->fault == COUNTED;
        return CMHA_OK;
    }
    return me->row->from == TEXT    ? text_step(me, now, loss)
           : me->row->from == BATCH ? batch_step(me, heap, now, loss)
                                    : own_objective(me, now, loss);
}

/* All but the moments of what learns by directions. */
static uint64_t settled(const life *me) {
    const cmha_parameters *p = &me->model.parameters;
    uint64_t d = digest_of(1, p->data, p->size * sizeof *p->data);
    for (const cmha_parameter *one = p->list; one < p->list + p->count; one++)
        for (size_t k = 0; k < 2 && one->kept[1] != SIZE_MAX; k++)
            d = digest_of(d, p->moments + one->kept[k], one->tensor.size * sizeof *p->moments);
    return d;
}

/* What is known after a step. Ranks tell each other Muon's directions, too, in the gradients' place. */
static void record(life *me, cmha_status status, double loss) {
    const cmha_parameters *p = &me->model.parameters;
    size_t s = me->done++, learning = p->learning, first = learning, last = 0;
    for (const cmha_parameter *one = p->list; one < p->list + p->count && p->work < p->kept; one++) {
        if (one->frozen || one->kept[1] != SIZE_MAX) continue;
        if (one->place < first) first = one->place;
        last = one->place + one->tensor.size;
    }
    me->statuses[s] = status, me->losses[s] = status ? 0 : loss, me->norms[s] = me->trainer.grad_norm;
    me->digests[s] = digest(me), me->settled[s] = settled(me), me->counts[s] = me->trainer.step;
    snprintf(me->lines[s], sizeof *me->lines, "%s", status ? cmha_error(me->model.context) : "");
    for (size_t i = 0; i < learning && me->place && me->ranks > 1 && me->fault == NOTHING; i++)
        me->unsent += me->sent[i] != 1 + (i >= first && i < last);
    memset(me->sent, 0, learning);
}

/* ------------------------------------------- a rank's life -------------------------------------------- */

static cmha_status open_model(life *me, cmha_context *c, cmha_knowledge *base) {
    cmha_model_config m = check_model_config();
    cmha_trainer_config t;
    char kind[32];
    size_t fields = strcspn(me->row->model, " "), width;
    cmha_status status;
    snprintf(kind, sizeof kind, "%.*s", (int)fields, me->row->model);
    cmha_config_defaults(cmha_trainer_table(), &t);
    m.d_ff = me->large ? 512 : 12, m.d_model = me->large ? 64 : 16;
    if (me->large && me->fault) m.n_layers = 1;
    t.steps = STEPS, t.batch = me->batch, t.length = LENGTH, t.eval_tokens = 73;
    status = cmha_kind(c, kind, &m);
    if (!status) status = cmha_config_set_all(c, cmha_model_table(), &m, me->row->model + fields);
    if (!status) status = cmha_config_set_all(c, cmha_trainer_table(), &t, SMOOTH);
    if (!status) status = cmha_config_set_all(c, cmha_trainer_table(), &t, me->row->training);
    if (!status) status = cmha_model_init(&me->model, c, &m);
    width = m.irw_width ? m.irw_width : m.d_model / 2;
    if (!status && m.irw_layers)
        status = cmha_knowledge_init(base, c, DOCUMENTS, width, vectors, NULL, NULL, NULL);
    if (!status && m.irw_layers) status = cmha_model_set_knowledge(&me->model, base);
    if (!status && me->row->frozen)
        status = cmha_parameters_tune(&me->model.parameters, me->row->frozen, CMHA_TUNE_FROZEN, 1, NULL);
    return status ? status : cmha_trainer_init(&me->trainer, &me->model, &t);
}

static cmha_status share(life *me) {
    cmha_ranks r = {me->rank, me->ranks, reduce, NULL, NULL, me};
    cmha_status status;
    if (me->overlaps) r.begin = begin, r.wait = wait_for;
    status = me->place ? cmha_trainer_share(&me->trainer, &r) : CMHA_OK;
    memset(&r, 0, sizeof r); /* it is copied */
    return status;
}

static void keep_result(life *me) {
    const cmha_model_config *c = &me->model.config;
    const cmha_parameters *p = &me->model.parameters;
    me->size = p->size, me->learning = p->learning;
    me->parameters = check_zeros(p->size), me->moments = check_zeros(3 * p->learning); /* a mean, too */
    memcpy(me->parameters, p->data, p->size * sizeof *p->data);
    if (p->work) memcpy(me->moments, p->moments, p->work * sizeof *p->moments);
    for (size_t i = 0; me->model.expert_use && i < c->n_layers * c->experts; i++)
        me->use += me->model.expert_use[i];
}

/* With a bad token on one rank, and then without. */
static cmha_status evaluate(life *me) {
    cmha_tokens held_out = {stream + 300, 100, 4, NULL, 0, 0}, bad = {bad_stream, 100, 4, NULL, 0, 0};
    if (me->row->from == TEXT && me->fault == BAD_TOKEN)
        me->evaluated = cmha_trainer_evaluate(&me->trainer, me->rank == me->culprit ? &bad : &held_out,
                                              &me->held_out);
    return me->row->from == TEXT ? cmha_trainer_evaluate(&me->trainer, &held_out, &me->held_out) : CMHA_OK;
}

static cmha_status train(life *me, check_heap *heap) {
    size_t calls = 0;
    cmha_status status = me->reads_first ? cmha_trainer_read(&me->trainer, me->resume) : CMHA_OK;
    if (!status) status = share(me);
    if (!status && me->resume && !me->reads_first) status = cmha_trainer_read(&me->trainer, me->resume);
    me->sent = (unsigned char *)check_alloc(me->model.parameters.learning, 1);
    me->sum = check_zeros(me->room = me->model.parameters.learning + MESSAGE);
    me->start = digest(me), me->done = me->trainer.step;
    while (!status && me->done < me->steps) {
        double loss = 0;
        status = step(me, heap, &loss), record(me, status, loss), status = CMHA_OK;
        if (!calls) calls = heap->calls;
        if (me->save && !me->rank && me->done == me->saves_at)
            status = cmha_trainer_save(&me->trainer, me->save);
        if (!status && me->done == 5) status = evaluate(me);
    }
    if (!status) status = evaluate(me);
    me->allocated = me->row->from != OWN && !me->save && !me->fault && calls && heap->calls != calls;
    return status;
}

static void *live(void *at) {
    life *me = (life *)at;
    check_heap heap;
    cmha_context_config config = check_heap_config(&heap);
    cmha_context c;
    cmha_knowledge base;
    cmha_status status;
    memset(&base, 0, sizeof base);
    config.threads = (int)me->threads, config.seed = 5, config.keep_blas_threads = 1;
    status = cmha_context_init(&c, &config);
    if (!status) status = open_model(me, &c, &base);
    if (!status) status = train(me, &heap);
    if (status) snprintf(me->line, sizeof me->line, "%s: %s", cmha_status_string(status), cmha_error(&c));
    if (me->place) place_leave(me->place);
    if (!status) keep_result(me);
    cmha_trainer_close(&me->trainer), cmha_model_close(&me->model), cmha_knowledge_close(&base);
    cmha_context_close(&c);
    me->leaks = !check_heap_empty(&heap);
    free(me->sent), free(me->sum);
    return NULL;
}

/* Ranks that learn together: crew_new, change what is to be otherwise, crew_run. */
typedef struct crew {
    place place;
    size_t ranks;
    life lives[RANKS];
} crew;

static crew *crew_new(const row *r, size_t ranks, size_t batch) {
    crew *all = (crew *)check_alloc(1, sizeof *all);
    place_open(&all->place, ranks);
    all->ranks = ranks;
    for (size_t i = 0; i < ranks; i++) {
        life *one = &all->lives[i];
        one->row = r, one->rank = i, one->ranks = ranks, one->batch = batch;
        one->threads = r->threads && !i ? r->threads : 1, one->steps = steps_of();
        one->place = ranks > 1 ? &all->place : NULL;
    }
    return all;
}

static void crew_run(crew *all) {
    pthread_t threads[RANKS];
    alarm(60); /* whoever hangs all the same is ended */
    for (size_t i = 0; i < all->ranks; i++)
        if (pthread_create(&threads[i], NULL, live, &all->lives[i])) abort();
    for (size_t i = 0; i < all->ranks; i++) pthread_join(threads[i], NULL);
    alarm(0);
}

static void crew_free(crew *all) {
    for (size_t i = 0; i < all->ranks; i++) free(all->lives[i].parameters), free(all->lives[i].moments);
    place_close(&all->place);
    free(all);
}

/* --------------------------------------------- what holds --------------------------------------------- */

/* What holds of every run: all ranks came through, met equally often, and have the same bits. */
static int sound(const crew *all, const char *label) {
    int failed = check_failed;
    for (size_t i = 0; i < all->ranks; i++) {
        const life *me = &all->lives[i], *first = &all->lives[0];
        CHECK_THAT(!me->line[0], "%s: rank %zu: %s", label, i, me->line);
        CHECK_THAT(!me->hung && !me->uneven && !me->odd,
                   "%s: rank %zu waits in vain %d times; sums: %d of other sizes, %d of no gradient",
                   label, i, me->hung, me->uneven, me->odd);
        CHECK_THAT(!me->touched && !me->unsent && !me->n_pieces,
                   "%s: rank %zu: %d numbers touched while they are summed, %d not summed once, %zu left",
                   label, i, me->touched, me->unsent, me->n_pieces);
        CHECK_THAT(!me->allocated && !me->leaks, "%s: rank %zu: steps take memory or it leaks", label, i);
        CHECK_THAT(me->start == first->start && !memcmp(me->digests, first->digests, sizeof me->digests),
                   "%s: rank %zu has other parameters or moments than the first", label, i);
        CHECK_THAT(!memcmp(me->losses, first->losses, sizeof me->losses) &&
                       !memcmp(me->norms, first->norms, sizeof me->norms) &&
                       !memcmp(&me->held_out, &first->held_out, sizeof me->held_out) &&
                       !memcmp(me->counts, first->counts, sizeof me->counts),
                   "%s: rank %zu tells other losses than the first", label, i);
        for (size_t s = 0; s < me->done && !me->fault; s++)
            if (!CHECK_THAT(!me->statuses[s], "%s: rank %zu, step %zu: %s", label, i, s, me->lines[s])) break;
    }
    return failed == check_failed;
}

/* Norms of gradients, which say more than losses do, may differ by a hundred times as much. */
static double apart(double a, double b) { return fabs(a - b) / fmax(fabs(a), 1e-3); }

/* The largest relative difference of losses; NaN counts as infinite. */
static double losses_apart(const life *a, const life *b, size_t *where) {
    double worst = apart(a->held_out, b->held_out);
    *where = a->done;
    for (size_t s = 0; s < a->done; s++) {
        double off = fmax(apart(a->losses[s], b->losses[s]), apart(a->norms[s], b->norms[s]) / 100);
        if (!(off <= worst)) worst = off == off ? off : HUGE_VAL, *where = s;
    }
    return worst;
}

static void near(const crew *one, const crew *other, const char *label) {
    const life *a = &one->lives[0], *b = &other->lives[0];
    double bound = check_tolerance(1e-12, 1e-5), scale = check_largest(a->parameters, a->size);
    size_t where;
    double off = losses_apart(a, b, &where), far = check_distance(a->parameters, b->parameters, a->size);
    double moments = check_distance(a->moments, b->moments, 3 * a->learning);
    if (getenv("RANKS_SHOW"))
        printf("%-90.90s loss %.4f to %.4f  off %.2e at %zu  parameters %.2e\n", label, a->losses[0],
               a->losses[a->done - 1], off, where, far / scale);
    CHECK_THAT(off <= bound, "%s: losses differ by %.3g at step %zu", label, off, where);
    CHECK_THAT(far <= bound * scale * 10, "%s: parameters differ by %.3g of %.3g", label, far, scale);
    CHECK_THAT(moments <= bound * 10 * (1 + check_largest(a->moments, 3 * a->learning)),
               "%s: moments differ by %.3g", label, moments);
}

static int same_bits(const crew *one, const crew *other) {
    const life *a = &one->lives[0], *b = &other->lives[0];
    return !memcmp(a->digests, b->digests, sizeof a->digests) &&
           !memcmp(a->losses, b->losses, sizeof a->losses) && !memcmp(a->norms, b->norms, sizeof a->norms) &&
           !memcmp(&a->held_out, &b->held_out, sizeof a->held_out);
}

/* One rank with the whole batch, and several. */
static void same_learning(const row *r) {
    size_t ranks = r->ranks ? r->ranks : 2, batch = ranks == 2 ? 2 : 1;
    crew *alone = crew_new(r, 1, ranks * batch), *together = crew_new(r, ranks, batch);
    uint64_t use = 0;
    int good;
    crew_run(alone), crew_run(together);
    good = sound(alone, r->model);
    if (sound(together, r->model) && good) {
        for (size_t i = 0; i < ranks; i++) use += together->lives[i].use;
        near(alone, together, r->model);
        CHECK_THAT(use == alone->lives[0].use, "%s: experts got %llu tokens, not %llu", r->model,
                   (unsigned long long)use, (unsigned long long)alone->lives[0].use);
        CHECK_THAT(alone->lives[0].digests[0] != alone->lives[0].start, "%s learns nothing", r->model);
    }
    crew_free(alone), crew_free(together);
}

/* Sums while the backward goes on: the bits of sums after it. */
static void same_overlapping(const row *r) {
    crew *after = crew_new(r, 2, 1), *meanwhile = crew_new(r, 2, 1);
    life *first = &meanwhile->lives[0];
    for (size_t i = 0; i < 2; i++) {
        life *both[2] = {&after->lives[i], &meanwhile->lives[i]};
        both[1]->overlaps = 1;
        for (size_t k = 0; k < 2; k++) both[k]->large = 1, both[k]->steps = 1;
    }
    crew_run(after), crew_run(meanwhile);
    int good = sound(after, r->model);
    if (sound(meanwhile, r->model) && good) {
        CHECK_THAT(same_bits(after, meanwhile), "%s: begin and wait lead elsewhere", r->model);
        if (getenv("RANKS_SHOW"))
            printf("began %d, asked %d times, summed %d\n", first->began, first->waits, first->sums);
        if (!r->frozen && r->from != OWN && !strstr(r->model, "recompute") && !strstr(r->model, "lora"))
            CHECK_THAT(first->began > 1 && first->waits > 10, "%s: %d sums begun, %d chances to go on",
                       r->model, first->began, first->waits);
    }
    crew_free(after), crew_free(meanwhile);
}

/* One rank that has callbacks, and ranks made alone again, are alone: the same bits. */
static void alone_all_the_same(void) {
    crew *alone = crew_new(&rows[0], 1, 3), *with = crew_new(&rows[0], 1, 3);
    with->lives[0].place = &with->place;
    crew_run(alone), crew_run(with);
    CHECK(sound(alone, "alone") && sound(with, "one rank with a reduce") && same_bits(alone, with));
    CHECK_THAT(with->lives[0].sums == 0, "one rank sends %d sums", with->lives[0].sums);
    crew_free(alone), crew_free(with);
}

/* The same ranks once more: the same bits, also with threads of their own. */
static void twice(const row *r) {
    crew *once = crew_new(r, 2, 2), *again = crew_new(r, 2, 2);
    crew_run(once), crew_run(again);
    CHECK_THAT(sound(once, r->model) && sound(again, r->model) && same_bits(once, again),
               "%s: once more, it leads elsewhere", r->model);
    crew_free(once), crew_free(again);
}

/* ----------------------------------------------- faults ----------------------------------------------- */

typedef struct mishap {
    fault what;
    row row;
    cmha_status own, others;
    const char *word; /* in the line of the rank where it happens */
} mishap;

static const mishap mishaps[] = {
    {BAD_TOKEN,
     {"cmha dropout=0.1", "accumulate=2", TEXT, NULL, 0, 3, 0},
     CMHA_ERR_TOKEN,
     CMHA_ERR_STATE,
     "19"},
    {BAD_TOKEN, {"rope causal=0", "", TEXT, NULL, 0, 3, 0}, CMHA_ERR_TOKEN, CMHA_ERR_STATE, "19"},
    {SHORT_STREAM,
     {"crat balance=0.1", "", TEXT, NULL, 0, 3, 0},
     CMHA_ERR_ARGUMENT,
     CMHA_ERR_STATE,
     "tokens"},
    {BAD_TOKEN,
     {"cmha classes=3 pcl_weight=0.1", "", BATCH, NULL, 0, 3, 0},
     CMHA_ERR_TOKEN,
     CMHA_ERR_STATE,
     "19"},
    {BAD_LABEL,
     {"crat classes=3 balance=0.1 phase_reg=0.1", "", BATCH, NULL, 0, 3, 0},
     CMHA_ERR_TOKEN,
     CMHA_ERR_STATE,
     "3"},
    {NO_BATCH, {"cmha", "", BATCH, NULL, 0, 3, 0}, CMHA_ERR_ARGUMENT, CMHA_ERR_STATE, "NULL"},
    {TOO_MANY, {"cmha", "", BATCH, NULL, 0, 3, 0}, CMHA_ERR_ARGUMENT, CMHA_ERR_STATE, "2"},
    {NAN_FEATURE,
     {"cmha features=3", "", BATCH, NULL, 0, 3, 0},
     CMHA_ERR_NOT_FINITE,
     CMHA_ERR_NOT_FINITE,
     "features"},
    {INFINITE_VALUE,
     {"cmha values=2 pcl_weight=0.1", "", BATCH, NULL, 0, 3, 0},
     CMHA_ERR_NOT_FINITE,
     CMHA_ERR_NOT_FINITE,
     ""},
    {NAN_LABEL,
     {"rope causal=0 classes=1", "", BATCH, NULL, 0, 3, 0},
     CMHA_ERR_NOT_FINITE,
     CMHA_ERR_NOT_FINITE,
     ""},
    {NAN_GRADIENT,
     {"cmha values=2", "", OWN, NULL, 0, 3, 0},
     CMHA_ERR_NOT_FINITE,
     CMHA_ERR_NOT_FINITE,
     "norm"},
};

static const mishap no_memory = {
    NO_MEMORY, {"crat balance=0.1 values=1", "", BATCH, NULL, 0, 2, 0}, CMHA_ERR_MEMORY, CMHA_ERR_STATE, ""};
static const mishap no_wait_for = {
    WAIT_FAILS, {"cmha", "", TEXT, NULL, 0, 2, 0}, CMHA_ERR_IO, CMHA_ERR_IO, "backward"};

/* Runs `steps` steps with a fault of the rank `culprit`. */
static crew *run_with(const row *r, fault what, size_t culprit, int overlaps, size_t fails_at) {
    crew *all = crew_new(r, r->ranks, 2);
    size_t when = overlaps ? 1 : 8; /* blocks whose sums are worth it cost time */
    for (size_t i = 0; i < r->ranks; i++) {
        life *one = &all->lives[i];
        one->when = when, one->steps = when + 3, one->fault = what, one->culprit = culprit;
        one->overlaps = one->large = overlaps, one->fails_at = fails_at;
    }
    crew_run(all);
    return all;
}

/* What is left of a step that failed: nothing but, of NOT_FINITE, the count. The steps after it are those of
   a run without it. */
static void left_nothing(const crew *all, const crew *without, int counted, const char *label) {
    const life *a = &all->lives[0], *b = &without->lives[0];
    size_t when = a->when;
    CHECK_THAT(a->digests[when] == a->digests[when - 1], "%s: parameters or moments have changed", label);
    CHECK_THAT(a->counts[when] == a->counts[when - 1] + (counted ? 1 : 0), "%s: the step counts otherwise",
               label);
    for (size_t s = when + 1; s < a->done; s++)
        CHECK_THAT(!a->statuses[s] && a->digests[s] == b->digests[s] && a->counts[s] == b->counts[s],
                   "%s: step %zu after it is another one (%s)", label, s - when, a->lines[s]);
}

static int one_fails(const mishap *m, size_t culprit, int overlaps, size_t fails_at) {
    int counted = m->own == CMHA_ERR_NOT_FINITE;
    crew *all = run_with(&m->row, m->what, culprit, overlaps, fails_at), *without;
    size_t when = all->lives[0].when;
    char label[160];
    if (m->what == NO_MEMORY && !all->lives[0].statuses[when])
        return crew_free(all), 0; /* it takes no more */
    without = run_with(&m->row, counted ? COUNTED : SKIPPED, culprit, overlaps, 0);
    snprintf(label, sizeof label, "%s, fault %d of rank %zu%s", m->row.model, (int)m->what, culprit,
             overlaps ? ", begin" : "");
    sound(all, label), sound(without, label);
    for (size_t i = 0; i < all->ranks; i++) {
        const life *me = &all->lives[i];
        cmha_status want = i == culprit ? m->own : m->others;
        CHECK_THAT(me->statuses[when] == want, "%s: rank %zu says \"%s\" (%s), not \"%s\"", label, i,
                   cmha_status_string(me->statuses[when]), me->lines[when], cmha_status_string(want));
        CHECK_THAT(strstr(me->lines[when], i == culprit ? m->word : ""), "%s: rank %zu's line is \"%s\"",
                   label, i, me->lines[when]);
        CHECK_THAT(me->lines[when][0], "%s: rank %zu has no line", label, i);
        if (m->row.from == TEXT && m->what == BAD_TOKEN) CHECK_IS(me->evaluated, want);
    }
    left_nothing(all, without, counted, label);
    crew_free(all), crew_free(without);
    return 1;
}

/* Every allocation in turn fails on one rank, of a batch that is longer than those before. */
static void memory_fails(const mishap *m, int overlaps) {
    size_t fails_at = 1;
    while (fails_at < 40 && one_fails(m, fails_at % 2, overlaps, fails_at)) fails_at++;
    CHECK_THAT(fails_at > 2 && fails_at < 40, "%s: %zu allocations can fail", m->row.model, fails_at - 1);
}

/* Where nothing learns, all ranks say so. */
static void all_frozen(int overlaps) {
    static const row none = {"cmha", "", TEXT, "*", 0, 2, 0};
    crew *all = run_with(&none, SKIPPED, 0, overlaps, 0);
    sound(all, "all frozen");
    for (size_t i = 0; i < all->ranks; i++) CHECK_IS(all->lives[i].statuses[0], CMHA_ERR_STATE);
    crew_free(all);
}

/* Each call of a step's sums in turn fails, on all ranks. Where it is that of Muon's directions, the moments
   of these have moved on, and nothing else. */
static void sums_fail(const row *r, int overlaps) {
    size_t fails_at = 0;
    int directs = strstr(r->training, "muon") != NULL, moved = 0;
    crew *without = run_with(r, SKIPPED, 0, overlaps, 0);
    int failed = 1;
    while (failed && ++fails_at < 40) {
        crew *all = run_with(r, SUMS_FAIL, 0, overlaps, fails_at);
        char label[160];
        snprintf(label, sizeof label, "%s, sum %zu%s fails", r->model, fails_at, overlaps ? ", begin" : "");
        sound(all, label);
        size_t when = all->lives[0].when;
        failed = all->lives[0].statuses[when] != CMHA_OK;
        for (size_t i = 0; failed && i < all->ranks; i++)
            CHECK_THAT(all->lives[i].statuses[when] == CMHA_ERR_IO && all->lives[i].lines[when][0],
                       "%s: rank %zu says \"%s\"", label, i,
                       cmha_status_string(all->lives[i].statuses[when]));
        const life *me = &all->lives[0];
        if (failed && directs && me->digests[when] != me->digests[when - 1])
            moved++, CHECK(me->settled[when] == me->settled[when - 1] && me->counts[when] == when);
        else if (failed) left_nothing(all, without, 0, label);
        crew_free(all);
    }
    CHECK_THAT(fails_at > 3 && !failed, "%s: %zu sums can fail", r->model, fails_at - 1);
    CHECK(moved == directs);
    crew_free(without);
}

/* ----------------------------------------------- misuse ----------------------------------------------- */

static cmha_status no_sum(void *user, cmha_real *values, size_t n) {
    return (void)user, (void)values, n ? CMHA_ERR_IO : CMHA_OK;
}
static cmha_status no_wait(void *user, int all) { return (void)user, all ? CMHA_ERR_IO : CMHA_OK; }

/* What is refused leaves a trainer alone, whose steps are as ever. */
static void misuse(void) {
    static const cmha_ranks wrong[] = {
        {2, 2, no_sum, NULL, NULL, NULL},       {SIZE_MAX, 2, no_sum, NULL, NULL, NULL},
        {0, 2, NULL, NULL, NULL, NULL},         {0, 2, no_sum, no_sum, NULL, NULL},
        {0, 2, no_sum, NULL, no_wait, NULL},    {0, 0, no_sum, NULL, NULL, NULL},
        {0, SIZE_MAX, no_sum, NULL, NULL, NULL}};
    static const row one = {"cmha", "", TEXT, NULL, 0, 0, 0},
                     global = {"cope-hybrid_norm causal=0 cope_max=global", "", TEXT, NULL, 0, 0, 0};
    cmha_context c;
    cmha_ranks right = {0, 2, no_sum, NULL, NULL, NULL};
    cmha_tokens tokens = {stream, 300, 4, NULL, 0, 0};
    life *me = (life *)check_alloc(1, sizeof *me);
    double loss;
    check_context(&c, 1, 5);
    me->row = &one, me->batch = 2;
    CHECK_OK(open_model(me, &c, NULL));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_THAT(cmha_trainer_share(&me->trainer, &wrong[i]) == CMHA_ERR_ARGUMENT &&
                       !strncmp(cmha_error(&c), "share:", 6),
                   "misuse %zu: \"%s\"", i, cmha_error(&c));
        CHECK_OK(cmha_trainer_step(&me->trainer, &tokens, &loss));
    }
    CHECK_OK(cmha_trainer_share(&me->trainer, &right));
    CHECK_IS(cmha_trainer_step(&me->trainer, &tokens, &loss), CMHA_ERR_IO);
    CHECK_IS(cmha_trainer_evaluate(&me->trainer, &tokens, &loss), CMHA_ERR_IO);
    CHECK_IS(cmha_trainer_apply(&me->trainer, &loss), CMHA_ERR_IO);
    CHECK_IS(cmha_trainer_share(&me->trainer, &wrong[0]), CMHA_ERR_ARGUMENT); /* two ranks, as before */
    CHECK_IS(cmha_trainer_step(&me->trainer, &tokens, &loss), CMHA_ERR_IO);
    CHECK_OK(cmha_trainer_share(&me->trainer, NULL));
    CHECK_OK(cmha_trainer_step(&me->trainer, &tokens, &loss));
    CHECK_THAT(me->trainer.step == sizeof wrong / sizeof *wrong + 1, "%zu steps", me->trainer.step);
    CHECK_IS(cmha_trainer_share(NULL, &right), CMHA_ERR_STATE);
    cmha_trainer_close(&me->trainer);
    CHECK_IS(cmha_trainer_share(&me->trainer, &right), CMHA_ERR_STATE);
    cmha_model_close(&me->model);
    me->row = &global;
    CHECK_OK(open_model(me, &c, NULL));
    CHECK_IS(cmha_trainer_share(&me->trainer, &right), CMHA_ERR_STATE);
    CHECK_THAT(strstr(cmha_error(&c), "cope_max"), "%s", cmha_error(&c));
    CHECK_OK(cmha_trainer_step(&me->trainer, &tokens, &loss));
    cmha_trainer_close(&me->trainer), cmha_model_close(&me->model), cmha_context_close(&c);
    free(me);
}

/* ----------------------------------------------- files ------------------------------------------------ */

/* What two ranks saved goes on with as many, to the bit, and with one or four as if they had been at it. */
static void resumes(const row *r) {
    static const size_t ranks[] = {2, 2, 1, 4};
    char folder[64] = "/tmp/cmha-ranks-XXXXXX", path[96];
    crew *whole = crew_new(r, 2, 2);
    cmha_context c;
    cmha_trainer_config t;
    if (!CHECK(system_folder(folder))) return;
    snprintf(path, sizeof path, "%s/state", folder);
    for (size_t i = 0; i < 2; i++) whole->lives[i].save = path, whole->lives[i].saves_at = steps_of() / 2;
    crew_run(whole);
    sound(whole, r->model);
    check_context(&c, 1, 5);
    CHECK_OK(cmha_config_read(&c, path, NULL, &t));
    CHECK_THAT(t.batch == 4, "the state of 2 ranks x 2 says batch %zu", t.batch);
    cmha_context_close(&c);
    for (size_t k = 0; k < sizeof ranks / sizeof *ranks; k++) {
        size_t n = ranks[k], half = steps_of() / 2;
        crew *later = crew_new(r, n, 4 / n);
        for (size_t i = 0; i < n; i++) later->lives[i].resume = path, later->lives[i].reads_first = k % 2;
        crew_run(later);
        if (sound(later, r->model)) {
            life *a = &whole->lives[0], *b = &later->lives[0];
            memcpy(b->losses, a->losses, half * sizeof *a->losses); /* of the steps before */
            memcpy(b->norms, a->norms, half * sizeof *a->norms);
            memcpy(b->digests, a->digests, half * sizeof *a->digests);
            if (n == 2)
                CHECK_THAT(same_bits(whole, later), "%s: resumed, two ranks lead elsewhere", r->model);
            else near(whole, later, r->model);
        }
        crew_free(later);
    }
    remove(path), rmdir(folder);
    crew_free(whole);
}

int main(int argc, char **argv) {
    cmha_context first; /* holds the BLAS at one thread for as long as the others run */
    cmha_blas_restart(argv);
    check_seed = 12;
    for (size_t i = 0; i < STREAM; i++)
        stream[i] = (int32_t)(check_below(3) ? i * i % VOCABULARY : check_below(VOCABULARY)),
        bad_stream[i] = VOCABULARY;
    check_fill(vectors, sizeof vectors / sizeof *vectors, 1);
    check_context(&first, 1, 1);
    for (size_t i = 0; i < N_ROWS; i++) {
        if (argc > 1 && !strstr(rows[i].model, argv[1])) continue; /* a row alone: ranks WORD */
        same_learning(&rows[i]);
        if (rows[i].overlaps) same_overlapping(&rows[i]);
    }
    alone_all_the_same();
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].threads > 1 || i < 2) twice(&rows[i]);
    for (size_t i = 0; i < sizeof mishaps / sizeof *mishaps; i++) one_fails(&mishaps[i], i % 2, 0, 0);
    one_fails(&mishaps[0], 1, 1, 0), one_fails(&mishaps[9], 1, 1, 0), one_fails(&no_wait_for, 0, 1, 0);
    memory_fails(&no_memory, 0), memory_fails(&no_memory, 1);
    sums_fail(&no_wait_for.row, 1), sums_fail(&mishaps[4].row, 0);
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].ranks && strstr(rows[i].training, "optimiser=muon")) sums_fail(&rows[i], 0);
    all_frozen(0), all_frozen(1);
    misuse();
    resumes(&rows[0]), resumes(&rows[3]);
    cmha_context_close(&first);
    return check_end();
}

#endif
