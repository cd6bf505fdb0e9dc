//! What the nodes of a cluster report about themselves and each other.

use super::{Redis, ServerError};

/// The number of slots.
pub(crate) const SLOTS: u16 = 16_384;

/// One line of `CLUSTER NODES`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) port: u16,
    pub(crate) id: String,
    /// The primary, if it is a replica.
    pub(crate) primary: Option<String>,
    pub(crate) epoch: u64,
    /// The slots that it owns, as first and last.
    pub(crate) slots: Vec<(u16, u16)>,
    pub(crate) is_myself: bool,
}

impl Node {
    pub(crate) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|(from, to)| (*from..=*to).contains(&slot))
    }

    /// `id ip:port@bus flags primary ping pong epoch link slot slot-slot [slot->-id]`
    fn parse(line: &str) -> Option<Node> {
        let fields: Vec<_> = line.split(' ').collect();
        let [id, address, flags, primary, _, _, epoch, _, slots @ ..] = fields.as_slice() else {
            return None;
        };
        let (_, port) = address.split('@').next()?.rsplit_once(':')?;
        let moving = |slots: &&&str| slots.starts_with('[');
        let slots = slots.iter().filter(|slots| !moving(slots)).map(|slots| {
            let (from, to) = slots.split_once('-').unwrap_or((slots, slots));
            Some((from.parse().ok()?, to.parse().ok()?))
        });
        Some(Node {
            port: port.parse().ok()?,
            id: (*id).to_owned(),
            primary: Some(*primary).filter(|primary| *primary != "-").map(str::to_owned),
            epoch: epoch.parse().ok()?,
            slots: slots.collect::<Option<_>>()?,
            is_myself: flags.split(',').any(|flag| flag == "myself"),
        })
    }
}

/// All nodes that a node knows, by port.
pub(crate) fn seen_by(node: &Redis) -> Result<Vec<Node>, ServerError> {
    let reply = node.command(&["CLUSTER", "NODES"])?.accepted()?;
    let lines = reply.text().unwrap_or_default().lines();
    let mut nodes: Vec<_> = lines.filter_map(Node::parse).collect();
    nodes.sort();
    Ok(nodes)
}

/// What a node reports about itself.
pub(crate) fn itself(node: &Redis) -> Result<Node, ServerError> {
    let mut nodes = seen_by(node)?.into_iter();
    let missing = || ServerError::new("a node of the cluster does not know itself");
    nodes.find(|seen| seen.is_myself).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_node_is_read() {
        let line = "aa 127.0.0.1:7000@17000,host myself,master - 0 0 3 connected 0-5 9 [7->-bb]";
        let node = Node::parse(line).unwrap();
        assert_eq!((node.port, node.epoch, node.is_myself), (7000, 3, true));
        assert_eq!(node.slots, [(0, 5), (9, 9)]);
        assert!(node.owns(5) && node.owns(9) && !node.owns(7));
        let node = Node::parse("bb 127.0.0.1:7001@17001 slave aa 0 0 3 connected").unwrap();
        assert_eq!(node.primary.as_deref(), Some("aa"));
        assert_eq!(Node::parse("odd"), None);
    }
}
