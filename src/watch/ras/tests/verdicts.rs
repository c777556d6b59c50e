//! Tests the verdicts about answers, and the line about them.

use std::time::Duration;

use super::super::answer::{Answer, State};
use super::super::judge::{Verdict, judge};
use super::super::names::Names;
use super::super::words;
use super::{JSON, TEXT, answer, only};

/// Returns the line, with the PIDs of the recordings replaced.
fn line(before: Option<&Answer>, now: &Answer) -> String {
    let names = Names::new("gpu-17", &["127.0.0.1", "10.0.0.17"], "10.0.0.18 gpu-18\n");
    let verdict = judge(before, now);
    let text = words::line(now, &verdict, before.map(|_| Duration::from_millis(60_400)), &names);
    let mut pids: Vec<u32> = now.lost.iter().map(|lost| lost.pid).collect();
    let ranks = now.communicators.iter().flat_map(|communicator| &communicator.ranks);
    pids.extend(ranks.filter_map(|rank| rank.place.as_ref().map(|place| place.pid)));
    pids.iter().fold(text, |text, pid| text.replace(&pid.to_string(), "PID"))
}

/// Returns the line as [`line`] does, with the version replaced as well.
fn says(release: &str, before: Option<&str>, now: &str) -> String {
    let before = before.map(|before| answer(release, before));
    let text = line(before.as_ref(), &answer(release, now));
    text.replace(&format!("NCCL's RAS ({release})"), "RAS")
}

/// A healthy job looks the same as one whose ranks all wait in the same collective for a network.
#[test]
fn no_answer_says_that_all_is_well() {
    for release in ["2.27.7"].iter().chain(&JSON) {
        for before in [None, Some("sound")] {
            assert_eq!(
                says(release, before, "sound"),
                "RAS sees no rank that is missing, dead, failed or behind, in 1 communicator. That does not prove that the job makes progress."
            );
        }
    }
}

#[test]
fn a_hang_is_two_answers_that_are_alike() {
    for release in JSON {
        assert_eq!(
            says(release, Some("behind"), "behind"),
            "RAS: the job hangs: in 1m, no rank has launched a collective; rank 2 of 3 on gpu-17 (GPU 2, process PID) is behind: it has launched 16 x AllReduce, others 17."
        );
        // One answer proves nothing.
        assert_eq!(
            says(release, None, "behind"),
            "RAS: rank 2 of 3 on gpu-17 (GPU 2, process PID) is behind: it has launched 16 x AllReduce, others 17; this is normal for a moment, and a hang only if it stays."
        );
        // Two answers prove nothing either if the first one was healthy.
        assert!(!judge(Some(&answer(release, "sound")), &answer(release, "behind")).hangs, "{release}");
        assert!(judge(Some(&answer(release, "sound")), &answer(release, "behind")).is_empty(), "{release}");
    }
    for release in TEXT {
        let hang = says(release, Some("behind"), "behind");
        assert!(hang.starts_with("RAS: the job hangs: in 1m, no rank"), "{release}: {hang}");
        assert!(hang.contains("rank 2 of 3 on gpu-17 (GPU 2, process PID) is behind"), "{release}: {hang}");
    }
}

/// Rank 2 of one communicator and rank 0 of the other are behind: together, these numbers name no ranks.
#[test]
fn ranks_are_numbered_in_one_communicator() {
    let mut now = answer(JSON[0], "behind");
    let mut other = now.communicators[0].clone();
    other.id.0[0] += 1;
    let (first, last) = (other.ranks[0].counts.clone(), other.ranks[2].counts.clone());
    (other.ranks[0].counts, other.ranks[2].counts) = (last, first);
    other.compare_counts();
    now.communicators.push(other);
    let verdict = judge(None, &now);
    assert_eq!((verdict.behind.len(), verdict.numbers().len()), (2, 1));
}

#[test]
fn a_job_that_goes_on_does_not_hang() {
    for release in JSON {
        let before = answer(release, "behind");
        let mut now = before.clone();
        // All ranks have progressed by the same amount, so the difference is the same.
        let communicator = &mut now.communicators[0];
        for rank in &mut communicator.ranks {
            rank.counts.iter_mut().for_each(|(_, times)| *times += 100);
        }
        communicator.compare_counts();
        assert_eq!(judge(Some(&before), &now), Verdict::default(), "{release}");
        // One rank has progressed in another collective: this is not a hang, but rank 2 is still behind.
        let mut now = before.clone();
        now.communicators[0].ranks[0].counts[0].1 += 1;
        now.communicators[0].compare_counts();
        let verdict = judge(Some(&before), &now);
        assert!(!verdict.hangs);
        assert_eq!(verdict.behind.len(), 1, "{verdict:?}");
        assert_eq!(verdict.behind[0].ranks[0].rank.number, 2);
    }
}

#[test]
fn ranks_that_do_not_answer_are_named() {
    for release in ["2.27.7"].iter().chain(&JSON) {
        assert_eq!(
            says(release, Some("sound"), "stopped"),
            "RAS: rank 2 of 3 on gpu-17 (GPU 2, process PID) does not answer RAS.",
            "{release}"
        );
        assert_eq!(
            says(release, Some("dead"), "dead"),
            "RAS: the job hangs: in 1m, no rank has launched a collective; rank 1 of 3 on gpu-17 (GPU 1, process PID) is dead: RAS could not reach its process for a minute; rank 2 of 3 on gpu-17 (GPU 2, process PID) is behind: it has launched 16 x AllReduce, others 17.",
            "{release}"
        );
    }
    // It counts all kinds of collectives together.
    let behind = says("2.25.1", Some("behind"), "behind");
    assert!(behind.ends_with(" is behind: it has launched 16 collectives, others 17."), "{behind}");
    assert_eq!(
        says("2.25.1", None, "stopped"),
        "RAS: rank 2 of 3 does not answer RAS; RAS does not reach process PID on gpu-17."
    );
    assert!(
        says("2.25.1", None, "dead").contains("process PID on gpu-17, which RAS considers dead"),
        "{}",
        says("2.25.1", None, "dead")
    );
}

/// Even the ranks of a large job all fit on one line.
#[test]
fn many_ranks_are_one_line() {
    let small = answer("2.32.3", "behind");
    let mut large = small.clone();
    let communicator = &mut large.communicators[0];
    let rank = communicator.ranks[2].clone();
    communicator.size = 4096;
    communicator.ranks = (0..4096)
        .map(|number| {
            let mut rank = rank.clone();
            let place = rank.place.as_mut().unwrap();
            place.host = format!("10.0.{}.{}", number / 8 / 256, number / 8 % 256).as_str().into();
            (place.pid, place.gpu) = (1000 + number, (number % 8) as i32);
            rank.number = number;
            rank.state = if (136..152).contains(&number) { State::Dead } else { State::Running };
            rank.counts[4].1 = if number >= 100 { 16 } else { 17 };
            rank
        })
        .collect();
    communicator.compare_counts();
    // A second communicator has the same processes.
    let mut second = communicator.clone();
    second.size = 8;
    second.ranks.truncate(8);
    large.communicators.push(second);
    let verdict = judge(None, &large);
    assert_eq!(verdict.dead.len(), 16);
    let names = Names::new("gpu-17", &["10.0.0.17"], "10.0.0.18 gpu-18\n");
    assert_eq!(
        words::line(&large, &verdict, None, &names),
        "NCCL's RAS (2.32.3): ranks 136..143 of 4096 on gpu-17, ranks 144..151 of 4096 on gpu-18 are dead: RAS could not reach their processes for a minute; ranks 100..103 of 4096 on 10.0.0.12, ranks 104..111 of 4096 on 10.0.0.13, ranks 112..119 of 4096 on 10.0.0.14, ranks 120..127 of 4096 on 10.0.0.15, 3968 ranks on other hosts are behind: they have launched 16 x AllReduce, others 17; this is normal for a moment, and a hang only if it stays."
    );
}

#[test]
fn errors_and_ranks_that_have_left_are_named() {
    let mut now = answer("2.32.3", "sound");
    now.communicators[0].ranks[1].state = State::Failed(5);
    assert_eq!(
        line(None, &now),
        "NCCL's RAS (2.32.3): rank 1 of 3 on gpu-17 (GPU 1, process PID) reports ncclInvalidUsage (NCCL's error 5)."
    );
    // A rank that is not in the communicator may still join, or the others may leave it.
    now.communicators[0].ranks[1].state = State::Absent;
    assert!(judge(None, &now).is_empty());
    let same = now.clone();
    assert_eq!(
        line(Some(&same), &now),
        "NCCL's RAS (2.32.3): rank 1 of 3 on gpu-17 (GPU 1, process PID) is not in the communicator in which others are."
    );
    assert_eq!(only(&now).ranks.len(), 3);
}
