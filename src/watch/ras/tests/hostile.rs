//! Tests bytes that NCCL does not send. Nothing panics, and the cost stays in proportion to the size.

use std::fmt::Write;
use std::time::Duration;

use super::super::answer::State;
use super::super::judge::judge;
use super::super::names::Names;
use super::super::protocol::{MOST_RANKS, Unreadable, read};
use super::super::words;
use super::{JSON, TEXT, bytes};

const OF_JSON: &str = "SERVER PROTOCOL 2\nOK\nOK\n";
const OF_TEXT: &str = "SERVER PROTOCOL 2\nOK\nERROR: Unknown command set format json\n";

#[test]
fn other_programs_and_other_words() {
    let foreign = |text: &str| match read(text.as_bytes()) {
        Err(Unreadable::Foreign(words)) => words,
        other => panic!("{text:?}: {other:?}"),
    };
    assert_eq!(foreign("SSH-2.0-OpenSSH_9.2p1\r\n"), "SSH-2.0-OpenSSH_9.2p1");
    assert_eq!(foreign("\u{1b}[2Jx\n"), "\u{fffd}[2Jx");
    assert!(foreign(&format!("{}\n", "x".repeat(1 << 20))).len() < 500);
    assert_eq!(read(b""), Err(Unreadable::Cut));
    assert_eq!(read(b"SERVER PROTOCOL 2"), Err(Unreadable::Cut));
    assert_eq!(read(b"SERVER PROTOCOL 2\nOK\n"), Err(Unreadable::Cut));
    let refused = read(b"SERVER PROTOCOL 2\nERROR: Invalid timeout value x\nOK\n");
    assert_eq!(refused, Err(Unreadable::Refused("ERROR: Invalid timeout value x".to_owned())));
    assert!(matches!(read(format!("{OF_JSON}[]").as_bytes()), Err(Unreadable::Malformed(_))));
    assert!(matches!(read(format!("{OF_TEXT}hello\n").as_bytes()), Err(Unreadable::Malformed(_))));
}

/// A truncated answer would look like a job that has lost ranks, or that has none.
#[test]
fn an_answer_that_is_cut_anywhere_is_no_answer() {
    for release in TEXT.iter().chain(&JSON) {
        let whole = bytes(release, "stopped");
        // The heading of the text's last section, with the end of its line, is enough.
        let text = String::from_utf8(whole.clone()).unwrap();
        let enough = text.find("\nWarnings").map_or(whole.len() - 2, |place| place + 9);
        for end in 0..enough {
            assert!(read(&whole[..end]).is_err(), "{release}, cut at {end}");
        }
    }
}

#[test]
fn more_ranks_than_any_job_has_are_refused() {
    let ranks = "{\"rank\":1},".repeat(3 * MOST_RANKS);
    let document = format!(
        "{OF_JSON}{{\"nccl_version\":\"2.30\",\"communicators\":[{{\"hash\":\"1\",\"size\":1,\"ranks\":[{ranks}"
    );
    assert_eq!(read(document.as_bytes()), Err(Unreadable::TooManyRanks));
    let nested = format!("{OF_JSON}{}", "[".repeat(1000));
    assert!(matches!(read(nested.as_bytes()), Err(Unreadable::Malformed(_) | Unreadable::Cut)));
    let mut text = format!(
        "{OF_TEXT}NCCL version 2.27.7 compiled\n    0  1  1  1  9  9  RUNNING  MISMATCH\n#0-0 (1) MISMATCH\n  9 ranks have status RUNNING\n"
    );
    for rank in 0..=MOST_RANKS {
        let _ = writeln!(text, "  Rank {rank} -- [process information not found]");
    }
    assert_eq!(read(text.as_bytes()), Err(Unreadable::TooManyRanks));
}

/// A comma is added only where NCCL omits it.
#[test]
fn no_other_comma_is_added() {
    let with = |rank: &str| {
        let text = format!(
            "{OF_JSON}{{\"nccl_version\":\"2.28.9\",\"communicators\":[{{\"hash\":\"0x1\",\"size\":2,\"ranks\":[],\"missing_ranks\":[{rank}]}}]}}"
        );
        read(text.as_bytes()).map(|answer| answer.communicators[0].ranks.len())
    };
    assert_eq!(with("{\"rank\":1,\"nvml_dev\": -1 \n \"status\":{}}"), Ok(1));
    // A host may have any name, even one that looks like this pattern.
    assert_eq!(with(r#"{"rank":1,"host":"\"nvml_dev\": 1 \"status\"","nvml_dev":1,"status":{}}"#), Ok(1));
    for wrong in [
        "{\"rank\":1 \"nvml_dev\":1}",
        "{\"rank\":1,\"nvml_dev\":1 \"host\":\"x\"}",
        "{\"rank\":1,\"nvml_dev\":1 2 \"status\":{}}",
        "{\"rank\":1,\"cuda_dev\":1 \"status\":{}}",
        "{\"rank\":1} {\"rank\":2}",
    ] {
        assert!(matches!(with(wrong), Err(Unreadable::Malformed(_))), "{wrong}");
    }
}

#[test]
fn odd_numbers_and_names_are_data() {
    let text = format!(
        "{OF_JSON}{{\"nccl_version\":\"9.9\",\"new\":[{{}}],\"communicators\":[{{\"hash\":\"what\",\"size\":4294967295,\"ranks\":[\
         {{\"rank\":7,\"host\":\"unknown\",\"pid\":-1,\"status\":{{\"init_state\":99}},\"collective_counts\":{{\"New\":18446744073709551615}}}},\
         {{\"rank\":7,\"collective_counts\":{{\"New\":1}}}}]}}]}}"
    );
    let answer = read(text.as_bytes()).unwrap();
    let rank = &answer.communicators[0].ranks;
    assert_eq!((rank.len(), rank[0].number, &rank[0].place), (1, 7, &None));
    assert_eq!(rank[0].state, State::Failed(99));
}

/// Reads recorded answers with some bytes changed, and random bytes after the first lines of an answer.
#[test]
fn damaged_ras_answers_cause_no_panic() {
    let mut random = fastrand::Rng::with_seed(28_028);
    let names = Names::default();
    let mut understood = 0;
    for turn in 0..3000 {
        let all = TEXT.iter().chain(&JSON).collect::<Vec<_>>();
        let what = random.choice(["behind", "stopped", "dead"]).unwrap();
        let mut bytes = bytes(random.choice(all).unwrap(), what);
        for _ in 0..random.usize(1..8) {
            let place = random.usize(..bytes.len());
            bytes[place] = if turn % 2 == 0 { random.u8(b' '..0x7f) } else { random.u8(..) };
        }
        if let Ok(answer) = read(&bytes) {
            understood += 1;
            let verdict = judge(Some(&answer), &answer);
            let line = words::line(&answer, &verdict, Some(Duration::from_secs(60)), &names);
            assert!(!line.contains(char::is_control), "{line}");
        }
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(300).collect();
        for start in ["", OF_JSON, OF_TEXT] {
            assert!(read(&[start.as_bytes(), &noise].concat()).is_err());
        }
    }
    assert!(understood > 300, "{understood}");
}
