//! Facts about leaders.

use tenure::{Broken, Ended, Leader, Released, Tenure, Term};

use super::{Kit, lasting, unrenewed};

async fn leads(client: &Tenure, name: &str) -> Option<Leader> {
    client.election(name).leader().await.expect("an answer")
}

async fn campaign(client: Tenure, name: String, value: &'static str) -> Term {
    client.election(name).value(value).campaign().await.expect("elected")
}

impl Kit {
    /// Waits until there are this many candidates, including the leader.
    async fn candidates(&self, client: &Tenure, name: &str, count: usize) {
        let come = async {
            loop {
                let views = client.list(name).await.expect("an answer");
                let known = views.iter().map(|view| view.holders.len() + view.waiters.len());
                if known.sum::<usize>() == count {
                    return;
                }
                self.sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        self.soon("all candidates are known", come).await;
    }
}

pub(super) async fn everyone_sees_who_leads(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    assert_eq!(leads(&two, &name).await, None);
    let term = campaign(one.clone(), name.clone(), "at web-3, über Port 80").await;
    let leader = leads(&two, &name).await.expect("someone leads");
    assert_eq!(leader.value.as_deref(), Some("at web-3, über Port 80"));
    assert_eq!(
        (leader.term, leader.owner),
        (term.number(), one.defaults().details().owner.clone())
    );
    assert!(two.election(&name).try_campaign().await.expect("an answer").is_none());
    assert_eq!(term.resign().await.expect("resigned"), Released::InTime);
    assert_eq!(leads(&two, &name).await, None);
}

pub(super) async fn leaders_follow_each_other_and_terms_rise(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let mut term = campaign(one.clone(), name.clone(), "0").await;
    let mut next = Vec::new();
    for (number, value) in ["1", "2", "3"].into_iter().enumerate() {
        let client = if number % 2 == 0 { two.clone() } else { one.clone() };
        next.push(kit.runtime.spawn(campaign(client, name.clone(), value)));
        kit.candidates(&one, &name, number + 2).await;
    }
    for (candidate, value) in next.into_iter().zip(["1", "2", "3"]) {
        let before = term.number();
        term.resign().await.expect("resigned");
        term = kit.soon("the next leader", candidate).await;
        assert!(term.number() > before, "terms rise");
        let leader = leads(&two, &name).await.expect("someone leads");
        assert_eq!((leader.value.as_deref(), leader.term), (Some(value), term.number()));
    }
}

pub(super) async fn a_leader_that_is_not_heard_of_any_more_is_followed(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let election = one.election(&name).options(unrenewed(&one, 1));
    let silent = election.campaign().await.expect("elected");
    let next = kit.runtime.spawn(campaign(two.clone(), name.clone(), "next"));
    assert_eq!(kit.soon("the end of the term", silent.lost()).await, Ended::Expired);
    let next = kit.soon("the next leader", next).await;
    assert!(!silent.is_live() && next.is_live() && next.number() > silent.number());
}

pub(super) async fn a_term_that_is_broken_is_lost_and_followed(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let election = one.election(&name).options(lasting(&one, 600));
    let term = election.campaign().await.expect("elected");
    let next = kit.runtime.spawn(campaign(two.clone(), name.clone(), "next"));
    kit.candidates(&one, &name, 2).await;
    let broken = two.election(&name).break_term(term.number(), "it hangs").await;
    assert_eq!(broken.expect("an answer"), Broken::Done);
    assert!(matches!(kit.soon("the loss", term.lost()).await, Ended::Broken(_)));
    drop(kit.soon("the next leader", next).await);
}

pub(super) async fn a_lock_an_election_and_a_once_of_one_name_are_three_things(kit: Kit) {
    let (one, name) = (kit.client(), kit.name("x"));
    let hold = one.mutex(&name).try_acquire().await.expect("an answer").expect("free");
    let term = one.election(&name).try_campaign().await.expect("an answer").expect("free");
    let run = one.once(&name).begin().await.expect("an answer");
    assert!(matches!(run, tenure::Begun::Mine(_)));
    let spaces: Vec<_> = one.list(&name).await.expect("an answer");
    assert_eq!(spaces.len(), 3, "{spaces:?}");
    drop((hold, term, run));
}
