//! Queries NCCL's RAS about the ranks while nothing moves, or a rail is far behind the others. It asks
//! until two answers, a minute apart, agree, because in every job some ranks lag behind briefly; and again after each failure, because a rank may be
//! stopped only for a moment, and the kernel gives each question to one of them.

use std::time::{Duration, Instant};

use nix::poll::PollFd;

use super::ras::answer::Answer;
use super::ras::client::{DEADLINE, Failure, Query};
use super::ras::judge::judge;
use super::ras::names::Names;
use super::ras::own::is_foreign;
use super::ras::words;
use crate::finding::{Finding, Id};
use crate::text::{shortened, visible};

const PAUSE: Duration = Duration::from_secs(60);

/// The most failures that are reported for one reason to ask: a foreign program may say something else each time.
const MOST_FAILURES: usize = 4;

/// The most answers for one reason to ask: a rank may be behind in every other one.
const MOST_ANSWERS: usize = 4;

/// The most ranks that a finding lists.
const MOST_RANKS: usize = 64;

const FIX: &str = "Look first in the logs of these ranks. rdma-init status --ras asks again.";

/// How long the name of the server may take to resolve. Looks at the ports wait for that, and for nothing else.
const LOOK_UP: Duration = Duration::from_secs(1);

/// Why the ranks may be worth a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Nothing moves.
    Rests,
    /// A rail is far behind the others.
    Lopsided,
}

pub(super) struct Ranks {
    /// The address in the form of NCCL_RAS_ADDR.
    address: String,
    doubt: Option<Doubt>,
    asked: Option<Instant>,
    /// The question that is not answered yet, and when it was asked.
    query: Option<(Query, Instant)>,
    /// The last answer, and when it was asked for.
    last: Option<(Answer, Instant)>,
    answers: usize,
    /// Two answers in a row agree for this reason.
    is_done: bool,
    /// The failures that were reported for this reason.
    reported: Vec<Failure>,
}

impl Ranks {
    pub(super) fn new(address: String) -> Ranks {
        Ranks {
            address,
            doubt: None,
            asked: None,
            query: None,
            last: None,
            answers: 0,
            is_done: false,
            reported: Vec::new(),
        }
    }

    /// Call this after each reading. Begins to ask RAS if there is a reason, and it is time.
    pub(super) fn ask(&mut self, doubt: Option<Doubt>) -> Option<Finding> {
        if self.doubt != doubt {
            self.doubt = doubt;
            (self.query, self.last, self.answers, self.is_done) = (None, None, 0, false);
            self.reported.clear();
        }
        doubt?;
        let now = Instant::now();
        let is_early = self.asked.is_some_and(|asked| now - asked < PAUSE);
        if self.is_done || self.query.is_some() || is_early {
            return None;
        }
        self.asked = Some(now);
        match Query::begin(&self.address, now + LOOK_UP, now + DEADLINE) {
            Ok(query) => {
                self.query = Some((query, now));
                self.go_on()
            }
            Err(failure) => self.fails(failure),
        }
    }

    /// Takes what RAS has answered by now.
    pub(super) fn go_on(&mut self) -> Option<Finding> {
        let (query, asked) = self.query.as_mut()?;
        let (answer, asked) = (query.go_on()?, *asked);
        self.query = None;
        let names = Names::of_this_host();
        match answer {
            // The kernel may give the next question to a process of this job.
            Ok(answer) if is_foreign(&answer, &names) => self.fails(Failure::MayBeForeign),
            Ok(answer) => {
                let before = self.last.take();
                let apart = before.as_ref().map(|(last, then)| (last, asked - *then));
                let (finding, agrees) = compare(apart, &answer, &names);
                self.answers += 1;
                self.is_done = agrees || self.answers >= MOST_ANSWERS;
                self.last = (!self.is_done).then_some((answer, asked));
                finding
            }
            Err(failure) => self.fails(failure),
        }
    }

    /// Reports each failure once.
    fn fails(&mut self, failure: Failure) -> Option<Finding> {
        if self.reported.len() >= MOST_FAILURES || self.reported.contains(&failure) {
            return None;
        }
        let said = failed(&self.address, &failure);
        self.reported.push(failure);
        said
    }

    /// Returns what to wait for, and until when, if a question is not answered yet.
    pub(super) fn awaited(&self) -> Option<(PollFd<'_>, Instant)> {
        self.query.as_ref().map(|(query, _)| (query.fd(), query.wake_at()))
    }
}

/// Returns what an answer shows, and whether it agrees with the one before, which came so long ago. One answer shows a
/// moment, in which some ranks of every job are behind: until another one confirms it, it is a note, and what the next
/// one does not show any more is taken back.
fn compare(before: Option<(&Answer, Duration)>, now: &Answer, names: &Names) -> (Option<Finding>, bool) {
    let verdict = judge(before.map(|(answer, _)| answer), now);
    let line = words::line(now, &verdict, before.map(|(_, apart)| apart), names);
    let had_fault = before.map(|(answer, _)| !judge(None, answer).is_empty());
    let mut finding = match (had_fault, verdict.is_empty()) {
        (None, true) => return (None, false),
        (Some(true), false) => Finding::warning(Id::StoppedRanks, line).with_fix(FIX),
        _ => Finding::info(Id::StoppedRanks, line),
    };
    finding.about.ranks = verdict.numbers().into_iter().take(MOST_RANKS).collect();
    (Some(finding), had_fault == Some(!verdict.is_empty()) || had_fault.is_some() && verdict.is_empty())
}

/// Reports a failed query, except a refused one: a job without NCCL has no server, and before the first
/// communicator there is none either.
fn failed(address: &str, failure: &Failure) -> Option<Finding> {
    let message = || format!("Cannot query NCCL's RAS at {}: {failure}.", visible(&shortened(address)));
    (*failure != Failure::Refused).then(|| Finding::info(Id::StoppedRanks, message()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::fd::AsFd;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;
    use crate::finding::Severity;
    use crate::watch::ras::answer::{Communicator, CommunicatorId, Rank, State};

    /// Makes a communicator whose ranks have these states, and have launched one collective this often.
    fn answer(ranks: &[(State, u64)]) -> Answer {
        let rank = |(number, (state, count)): (u32, &(State, u64))| Rank {
            number,
            place: None,
            state: *state,
            counts: vec![("AllReduce".into(), *count)],
        };
        let mut communicator = Communicator {
            id: CommunicatorId([1, 2, 3]),
            size: u32::try_from(ranks.len()).unwrap(),
            ranks: (0..).zip(ranks).map(rank).collect(),
            unequal: Vec::new(),
        };
        communicator.compare_counts();
        Answer { release: "2.28.9".into(), total: 1, communicators: vec![communicator], ..Answer::default() }
    }

    fn told(before: Option<&Answer>, now: &Answer) -> Option<(Severity, String)> {
        let before = before.map(|answer| (answer, PAUSE));
        compare(before, now, &Names::default()).0.map(|finding| (finding.severity, finding.message))
    }

    #[test]
    fn one_answer_is_a_note_and_two_that_agree_are_a_warning() {
        use State::{Dead, Running};
        let dead = answer(&[(Running, 7), (Dead, 7)]);
        let line = "NCCL's RAS (2.28.9): rank 1 of 2 is dead: RAS could not reach its process for a minute.";
        assert_eq!(told(None, &dead), Some((Severity::Info, line.to_owned())));
        let (severity, again) = told(Some(&dead), &dead).unwrap();
        assert!(severity == Severity::Warning && again.contains("rank 1 of 2 is dead"), "{again}");

        let behind = answer(&[(Running, 7), (Running, 6)]);
        let (severity, line) = told(None, &behind).unwrap();
        assert!(severity == Severity::Info && !line.contains("hangs"), "{line}");
        assert!(line.contains("rank 1 of 2 is behind"), "{line}");
        let about = |now: &Answer| compare(None, now, &Names::default()).0.unwrap().about.ranks;
        assert_eq!((about(&dead), about(&behind)), (vec![1], vec![1]));
        let (severity, line) = told(Some(&behind), &behind).unwrap();
        assert_eq!(severity, Severity::Warning);
        assert!(line.contains("the job hangs: in 1m, no rank has launched a collective"), "{line}");
        // That it is no longer so is said as well.
        let moved = answer(&[(Running, 8), (Running, 7)]);
        let (severity, line) = told(Some(&behind), &moved).unwrap();
        assert!(severity == Severity::Info && line.contains("sees no rank that is missing"), "{line}");
    }

    /// A fault that only the second answer shows is asked about once more.
    #[test]
    fn ras_is_asked_until_two_answers_agree() {
        use State::{Dead, Running};
        let (level, dead) = (answer(&[(Running, 7), (Running, 7)]), answer(&[(Running, 7), (Dead, 7)]));
        let agrees = |before: Option<&Answer>, now| {
            compare(before.map(|answer| (answer, PAUSE)), now, &Names::default()).1
        };
        assert!(!agrees(None, &level) && !agrees(None, &dead) && !agrees(Some(&level), &dead));
        assert!(agrees(Some(&level), &level) && agrees(Some(&dead), &dead) && agrees(Some(&dead), &level));
    }

    #[test]
    fn an_answer_without_a_fault_is_told_after_the_second() {
        let level = answer(&[(State::Running, 7), (State::Running, 7)]);
        assert_eq!(told(None, &level), None);
        let (severity, line) = told(Some(&level), &level).unwrap();
        assert_eq!(severity, Severity::Info);
        assert!(line.contains("sees no rank that is missing"), "{line}");
    }

    /// Goes on until the question is answered, or failed.
    fn until_answered(ranks: &mut Ranks) -> Option<Finding> {
        loop {
            if let Some(said) = ranks.go_on() {
                return Some(said);
            }
            let (mut fd, until) = match ranks.awaited() {
                Some((fd, until)) => ([fd], until),
                None => return None,
            };
            let left = until.saturating_duration_since(Instant::now());
            nix::poll::poll(&mut fd, crate::wire::connection::timeout(left)).unwrap();
        }
    }

    fn answer_to(client: &mut TcpStream, answer: &[u8]) {
        let mut question = Vec::new();
        while !question.ends_with(b"STATUS\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            question.extend(byte);
        }
        client.write_all(answer).unwrap();
    }

    #[test]
    fn a_job_without_a_ras_server_is_not_reported() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ranks = Ranks::new(listener.local_addr().unwrap().to_string());
        drop(listener);
        assert_eq!((ranks.ask(None), ranks.asked), (None, None));
        assert_eq!(ranks.ask(Some(Doubt::Rests)), None);
        assert_eq!(until_answered(&mut ranks), None);
        assert!(!ranks.is_done);
        let asked = ranks.asked;
        assert_eq!((ranks.ask(Some(Doubt::Rests)), ranks.asked), (None, asked), "that is too early");
        assert!(failed("localhost:28028", &Failure::TooLate).is_some());
        let foreign = failed("localhost:28028", &Failure::MayBeForeign).unwrap();
        assert!(foreign.message.ends_with(" Give each job its own port in NCCL_RAS_ADDR."), "{foreign:?}");
    }

    /// Returns an answer with a dead rank, and of processes that are here.
    fn dead() -> Vec<u8> {
        let own = std::process::id().to_string();
        let recorded = include_str!("ras/recorded/2.28.9-dead.txt");
        recorded.replace("12184", &own).replace("12188", &own).into_bytes()
    }

    /// The first server has no answer, twice; then one has, and is asked once more.
    #[test]
    fn ras_is_asked_again_after_a_failure_and_the_same_failure_is_told_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ranks = Ranks::new(listener.local_addr().unwrap().to_string());
        let answers = [Vec::new(), Vec::new(), dead(), b"hello\n".to_vec(), dead()];
        let rounds = answers.len();
        let server = std::thread::spawn(move || {
            for answer in answers {
                answer_to(&mut listener.accept().unwrap().0, &answer);
            }
        });
        let mut said = Vec::new();
        for _ in 0..rounds {
            assert!(!ranks.is_done);
            // A minute later.
            ranks.asked = None;
            let finding = ranks.ask(Some(Doubt::Rests)).or_else(|| until_answered(&mut ranks));
            said.push(finding.map(|finding| finding.message));
        }
        server.join().unwrap();
        assert!(ranks.is_done);
        let [Some(cut), None, Some(dead), Some(foreign), Some(hangs)] = &said[..] else { panic!("{said:?}") };
        assert!(cut.ends_with(": the answer ends too early."), "{cut}");
        assert!(dead.starts_with("NCCL's RAS (2.28.9): rank 1 of 3 on "), "{dead}");
        assert!(foreign.ends_with(": another program answers, with \"hello\"."), "{foreign}");
        assert!(hangs.contains(": the job hangs: in "), "{hangs}");
        assert_eq!(
            (ranks.ask(Some(Doubt::Lopsided)), ranks.is_done),
            (None, false),
            "another reason, but too early"
        );
        ranks.ask(None);
        assert!(ranks.reported.is_empty() && ranks.last.is_none() && !ranks.is_done);
    }

    #[test]
    fn a_question_that_is_not_answered_yet_holds_up_nothing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ranks = Ranks::new(listener.local_addr().unwrap().to_string());
        // A call that waited for the answer would wait in vain: the server answers only afterwards.
        assert_eq!((ranks.ask(Some(Doubt::Rests)), ranks.is_done), (None, false));
        let (mut server, _) = listener.accept().unwrap();
        let asked = ranks.asked;
        assert_eq!(
            (ranks.go_on(), ranks.ask(Some(Doubt::Rests)), ranks.asked),
            (None, None, asked),
            "it is not asked twice"
        );
        let (fd, _) = ranks.awaited().unwrap();
        let flags = OFlag::from_bits_retain(fcntl(fd.as_fd(), FcntlArg::F_GETFL).unwrap());
        assert!(flags.contains(OFlag::O_NONBLOCK), "a call may wait for the server");
        let answer = std::thread::spawn(move || {
            answer_to(&mut server, &dead());
        });
        let said = until_answered(&mut ranks).unwrap();
        assert!(said.message.starts_with("NCCL's RAS (2.28.9): rank 1 of 3 on "), "{said:?}");
        assert!(ranks.awaited().is_none() && ranks.last.is_some());
        answer.join().unwrap();
    }
}
