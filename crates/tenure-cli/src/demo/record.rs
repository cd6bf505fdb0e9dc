//! What the processes of a proof share: one value in a file, with a journal of accesses.
//!
//! Every access is one step: a concurrent one waits for the kernel's lock on the file. So the results show what the
//! processes did, and not how files work. If a fence is given, it refuses a late one, as a database can.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tenure::Fence;

use super::Trouble;

/// One value in a file.
#[derive(Clone, Debug)]
pub(super) struct Record {
    path: PathBuf,
}

/// The contents of the file: the highest fence, the value, and the journal, one line each.
#[derive(PartialEq, Eq, Debug, Default)]
struct Page {
    highest: Fence,
    value: String,
    journal: Vec<String>,
}

impl Record {
    /// The record of this name.
    pub(super) fn at(folder: &Path, name: &str) -> Record {
        Record { path: folder.join(name) }
    }

    /// The same, newly created.
    pub(super) fn create(folder: &Path, name: &str, value: &str) -> Result<Record, Trouble> {
        let record = Record::at(folder, name);
        let page = Page { value: value.to_owned(), ..Page::default() };
        fs::write(&record.path, page.text()).map_err(|error| record.trouble("create", &error))?;
        Ok(record)
    }

    /// The value, without a record of the access.
    pub(super) fn value(&self) -> Result<String, Trouble> {
        self.open(|page| page.value.clone())
    }

    /// The journal, in order.
    pub(super) fn journal(&self) -> Result<Vec<String>, Trouble> {
        self.open(|page| page.journal.clone())
    }

    /// Adds a line to the journal.
    pub(super) fn note(&self, line: &str) -> Result<(), Trouble> {
        self.open(|page| page.journal.push(line.to_owned()))
    }

    /// The value, with a record of who read it.
    pub(super) fn read(&self, by: &str) -> Result<String, Trouble> {
        self.open(|page| {
            page.journal.push(format!("{by} reads"));
            page.value.clone()
        })
    }

    /// Writes without a check.
    pub(super) fn write(&self, by: &str, value: &str) -> Result<(), Trouble> {
        self.open(|page| page.write(by, value))
    }

    /// The value, unless a later holder was here.
    pub(super) fn read_by_fence(&self, fence: Fence) -> Result<Option<String>, Trouble> {
        self.open(|page| page.admits(fence).then(|| page.value.clone()))
    }

    /// Writes, unless a later holder was here. Returns whether it did.
    pub(super) fn write_by_fence(
        &self,
        by: &str,
        value: &str,
        fence: Fence,
    ) -> Result<bool, Trouble> {
        self.open(|page| {
            let admitted = page.admits(fence);
            match admitted {
                true => page.write(by, value),
                false => page.journal.push(format!("{by} is refused")),
            }
            admitted
        })
    }

    /// Changes the value and the journal, in one step.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut String, &mut Vec<String>) -> T,
    ) -> Result<T, Trouble> {
        self.open(|page| change(&mut page.value, &mut page.journal))
    }

    fn open<T>(&self, act: impl FnOnce(&mut Page) -> T) -> Result<T, Trouble> {
        let failed = |error: std::io::Error| self.trouble("open", &error);
        let mut file =
            OpenOptions::new().read(true).write(true).open(&self.path).map_err(failed)?;
        // The kernel releases it when the file is closed or the process exits.
        file.lock().map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let mut page = Page::read(&text)
            .ok_or_else(|| format!("{} is not as it was left", self.path.display()))?;
        let done = act(&mut page);
        let changed = page.text();
        if changed != text {
            overwrite(&mut file, &changed).map_err(failed)?;
        }
        Ok(done)
    }

    fn trouble(&self, what: &str, error: &std::io::Error) -> Trouble {
        format!("cannot {what} {}: {error}", self.path.display()).into()
    }
}

fn overwrite(file: &mut File, text: &str) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(text.as_bytes())
}

impl Page {
    /// Whether no later holder was here before. A read counts, too.
    fn admits(&mut self, fence: Fence) -> bool {
        if fence < self.highest {
            return false; // whoever this is, a later holder was here
        }
        self.highest = fence;
        true
    }

    fn write(&mut self, by: &str, value: &str) {
        self.journal.push(format!("{by} writes"));
        value.clone_into(&mut self.value);
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.highest, self.value);
        for line in &self.journal {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    fn read(text: &str) -> Option<Page> {
        let mut lines = text.lines().map(str::to_owned);
        let highest = lines.next()?.parse().ok()?;
        Some(Page { highest, value: lines.next()?, journal: lines.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_the_holder_again_and_a_later_one_but_no_earlier_one() {
        let mut page = Page::default();
        assert!(page.admits(Fence::new(4)));
        assert!(page.admits(Fence::new(4)));
        assert!(page.admits(Fence::new(6)));
        assert!(!page.admits(Fence::new(4)));
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let mut page = Page { highest: Fence::new(7), ..Page::default() };
        assert_eq!(Page::read(&page.text()).unwrap(), page);
        page.write("Ada", "table 12");
        assert_eq!(Page::read(&page.text()).unwrap(), page);
        assert_eq!(page.journal, ["Ada writes"]);
        assert_eq!(Page::read(""), None);
        assert_eq!(Page::read("x\n\n"), None);
    }
}
