/* What a case can ask NCCL for. */
#ifndef ASKS_H
#define ASKS_H

/* Where answers and NCCL's log go. */
extern int answers;
extern int nccl_log;

/* What comes before everything else in NCCL: reads the conf files. */
void prepare(void);

/* Answers; the words are those behind "ask". */
void ask(char **words, int count);

#endif
