/* The questions of a case, which NCCL answers. */
#ifndef ASKS_H
#define ASKS_H

/* The files into which the answers and NCCL's log are written. */
extern int answers;
extern int nccl_log;

/* Lets NCCL read the conf files, which it does before everything else. */
void prepare(void);

/* Answers one question. The words are those after "ask". */
void ask(char **words, int count);

#endif
