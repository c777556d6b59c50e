//! Tests how NCCL's answers are read, version by version.

use super::super::answer::{Collective, Host, Launched, Place, State, Unequal};
use super::{JSON, TEXT, answer, bytes, only};

fn states(release: &str, what: &str) -> Vec<(u32, State)> {
    only(&answer(release, what)).ranks.iter().map(|rank| (rank.number, rank.state)).collect()
}

#[test]
fn json_has_all_ranks_of_all_communicators() {
    use State::{Dead, Missing, Running};
    for release in JSON {
        let sound = answer(release, "sound");
        assert_eq!((sound.release.as_str(), sound.total), (release, 1));
        let communicator = only(&sound);
        assert_eq!((communicator.size, communicator.unequal.len()), (3, 0));
        assert!(communicator.id.0.iter().all(|hash| *hash != 0), "{communicator:?}");
        let rank = communicator.rank(2).unwrap();
        let Some(Place { host, pid, gpu }) = &rank.place else { panic!("{rank:?}") };
        assert_eq!((host, *gpu), (&Host::from("127.0.0.1"), 2));
        assert!(*pid > 1);
        assert_eq!(rank.counts.len(), 5);
        assert!(rank.counts.contains(&("AllReduce".into(), 0)), "{rank:?}");
        assert_eq!(states(release, "sound"), [(0, Running), (1, Running), (2, Running)]);
        assert_eq!(states(release, "behind"), [(0, Running), (1, Running), (2, Running)]);
        assert_eq!(states(release, "stopped"), [(0, Running), (1, Running), (2, Missing)], "{release}");
        assert_eq!(states(release, "dead"), [(0, Running), (1, Dead), (2, Running)], "{release}");
    }
}

/// An answer of a job on a real H200, which has one rank. All other recorded answers are from processes without a GPU.
#[test]
fn the_answer_of_a_rank_with_a_gpu_reads_like_the_others() {
    let answer = answer("2.28.9", "h200");
    let communicator = only(&answer);
    assert_eq!((answer.release.as_str(), communicator.size), ("2.28.9", 1));
    assert_eq!(states("2.28.9", "h200"), [(0, State::Running)]);
    let Some(Place { host, pid, gpu }) = &communicator.ranks[0].place else { panic!("{communicator:?}") };
    assert_eq!((host, *pid, *gpu), (&Host::from("192.0.2.2"), 20, 0));
}

/// Without the comma, the output of NCCL 2.28.9 is not JSON. Other versions write the comma.
#[test]
fn the_comma_that_a_release_leaves_out_is_put_where_it_belongs() {
    let broken = bytes("2.28.9", "stopped");
    let text = String::from_utf8(broken).unwrap();
    assert!(text.contains("\"nvml_dev\": 2\n          \"status\""), "{text}");
    let document = text.split_once("OK\nOK\n").unwrap().1;
    assert!(serde_json::from_str::<serde_json::Value>(document).is_err());
    let whole = String::from_utf8(bytes("2.32.3", "stopped")).unwrap();
    let document = whole.split_once("OK\nOK\n").unwrap().1;
    assert!(serde_json::from_str::<serde_json::Value>(document).is_ok());
}

/// The text lists only the ranks that differ.
#[test]
fn text_has_the_ranks_that_differ() {
    use State::{Dead, Missing, Running};
    let sound = answer("2.27.7", "sound");
    assert_eq!((sound.release.as_str(), sound.total, sound.communicators.len()), ("2.27.7", 1, 0));
    for release in TEXT {
        assert_eq!(states(release, "behind"), [(2, Running)], "{release}");
    }
    assert_eq!(states("2.27.7", "stopped"), [(2, Missing)]);
    assert_eq!(states("2.27.7", "dead"), [(0, Running), (1, Dead), (2, Running)]);
    let place = only(&answer("2.27.7", "stopped")).ranks[0].place.clone();
    assert_eq!(place.map(|place| (place.host, place.gpu)), Some((Host::from("127.0.0.1"), 2)));
}

/// Up to 2.25, a missing rank has only its number, and its process is listed separately.
#[test]
fn earlier_text_has_numbers_of_missing_ranks_and_their_processes() {
    let stopped = answer("2.25.1", "stopped");
    assert_eq!(states("2.25.1", "stopped"), [(2, State::Missing)]);
    assert_eq!(only(&stopped).ranks[0].place, None);
    let [lost] = stopped.lost.as_slice() else { panic!("{stopped:?}") };
    assert_eq!((&lost.host, lost.is_dead), (&Host::from("127.0.0.1"), false));
    let dead = answer("2.25.1", "dead");
    assert!(dead.lost.iter().all(|lost| lost.is_dead) && dead.lost.len() == 1, "{dead:?}");
}

/// The same case in each format: two ranks, which the text does not name, launched it 17 times, and rank 2
/// launched it 16 times.
#[test]
fn counts_that_differ_are_grouped() {
    let unequal = |collective: &str, most: &[u32]| Unequal {
        collective: Collective::from(collective),
        groups: vec![
            Launched { times: 17, ranks: 2, listed: most.to_vec() },
            Launched { times: 16, ranks: 1, listed: vec![2] },
        ],
    };
    for release in JSON {
        assert_eq!(only(&answer(release, "behind")).unequal, [unequal("AllReduce", &[0, 1])], "{release}");
    }
    // Up to 2.25, all kinds are counted together.
    for (release, collective) in [("2.25.1", "collective"), ("2.27.7", "AllReduce")] {
        assert_eq!(only(&answer(release, "behind")).unequal, [unequal(collective, &[])], "{release}");
    }
}

/// These sections are not recorded. They follow NCCL's user guide and `rasClientRunComms`.
#[test]
fn other_sections_of_the_text() {
    let text = "SERVER PROTOCOL 2\nOK\nERROR: Unknown command set format json\n\
        NCCL version 2.26.2 compiled with CUDA 12.8\nCUDA runtime version 12080, driver version 12080\n\n\
        Communicators... (0.00s)\n=============\n\n\
        Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n    \
        #  in group  per comm  per node  per comm  in group\n    \
        0         1         4       1-2        32        32  FINALIZE  ERROR,MISMATCH\n    \
        1         7         4         1         4        28   RUNNING      OK\n\n\
        Errors\n======\n\nDEAD\n  2 job processes are considered dead (unreachable via the RAS network)\n  \
        Process 7 on node fd00::7 managing GPUs 1,2\n  [could not find information on 1 process]\n\n\
        #0-0 (9e17999afaa87dbb) ERROR\n  Initialization errors on 3 ranks\n  2 ranks reported System error\n  \
        Rank 5 -- GPU 5 managed by process 50 on node 10.0.0.1\n  \
        Rank 6 -- [process information not found]\n  \
        Rank 9 reported Invalid usage -- GPU 1 (NVML 3) managed by process 90 on node 10.0.0.2\n\n\
        Warnings\n========\n\nTIMEOUT\n  Encountered 2 communication timeouts while gathering communicator data\n\n\
        #0-0 (9e17999afaa87dbb) MISMATCH\n  Communicator ranks have different status\n  \
        26 ranks have status NOCOMM\n  4 ranks have status RUNNING\n  \
        Rank 0 -- GPU 0 managed by process 483 on node 172.16.64.210\n  \
        Rank 4 has status ABORT -- GPU 4 managed by process 487 on node 172.16.64.210\n  \
        Communicator ranks have different Broadcast operation counts\n  \
        29 ranks have launched up to operation 3\n  Rank 1 has not launched any operations -- GPU 1 managed by process 484 on node 172.16.64.210\n\n";
    let answer = super::read(text.as_bytes()).unwrap();
    assert_eq!((answer.release.as_str(), answer.total), ("2.26.2", 8));
    let communicator = only(&answer);
    assert_eq!((communicator.size, communicator.id.0[0]), (32, 0x9e17_999a_faa8_7dbb));
    let found: Vec<(u32, State)> = communicator.ranks.iter().map(|rank| (rank.number, rank.state)).collect();
    assert_eq!(
        found,
        [
            (0, State::Running),
            (1, State::Finalizing),
            (4, State::Aborting),
            (5, State::Failed(2)),
            (6, State::Failed(2)),
            (9, State::Failed(5)),
        ]
    );
    assert_eq!(communicator.rank(6).unwrap().place, None);
    assert_eq!(communicator.rank(9).unwrap().place.as_ref().map(|place| place.gpu), Some(1));
    let [unequal] = communicator.unequal.as_slice() else { panic!("{communicator:?}") };
    let groups: Vec<(u64, usize)> = unequal.groups.iter().map(|group| (group.times, group.ranks)).collect();
    assert_eq!(groups, [(3, 29), (0, 1)]);
    let [lost] = answer.lost.as_slice() else { panic!("{answer:?}") };
    assert_eq!((&lost.host, lost.pid, lost.is_dead), (&Host::from("fd00::7"), 7, true));
}
