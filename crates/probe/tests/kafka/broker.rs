//! Apache Kafka on loopback: one node as broker and controller (KRaft), with its own folder.
//!
//! Its jars come from Maven Central. They are fetched once, into the folder that `THALWEG_KAFKA_JARS` names, else
//! beside the test's program.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where its files are, for tests of other crates too.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/tests/kafka");
/// How long a broker may take to answer.
const UP_WITHIN: Duration = Duration::from_secs(120);

/// A message as read by the Java client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// A broker, stopped when dropped.
pub(crate) struct Broker {
    folder: tempfile::TempDir,
    jars: PathBuf,
    port: u16,
    /// Of the listener with TLS, where users say who they are.
    secure_port: u16,
    child: Option<Child>,
}

/// The user of the secure listener, and the password.
pub(crate) const USER: (&str, &str) = ("probe", "secret-0123");

impl Broker {
    /// Starts a broker; `None`, with the reason in the test's output, if that is not possible.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let mut broker = Self::prepare(test)?;
        broker.launch();
        Some(broker)
    }

    /// Prepares a broker that is not running yet, with its future address.
    pub(crate) fn prepare(test: &str) -> Option<Self> {
        let jars = jars().map_err(|why| println!("SKIPPED {test}: {why}")).ok()?;
        let folder = tempfile::tempdir().expect("a folder");
        let [port, secure_port, controller] = [(); 3].map(|()| thalweg_testdata::free_port());
        let settings = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure_port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://localhost:{secure_port}\n\
             inter.broker.listener.name=PLAINTEXT\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT\n\
             {}\
             log.dirs={}\n\
             num.partitions=3\n\
             offsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n",
            secure(folder.path()),
            folder.path().join("data").display()
        );
        fs::write(folder.path().join("server.properties"), settings).expect("there is room");
        let broker = Self { folder, jars, port, secure_port, child: None };
        let formatted =
            broker
                .java("kafka.tools.StorageTool")
                .args(["format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c"])
                .arg(broker.folder.path().join("server.properties"))
                .args(["256", "512"].map(|bits| {
                    format!("--add-scram=SCRAM-SHA-{bits}=[name={},password={}]", USER.0, USER.1)
                }))
                .output()
                .expect("java runs");
        assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stderr));
        Some(broker)
    }

    /// Starts it and waits until it answers.
    pub(crate) fn launch(&mut self) {
        let log =
            File::options().create(true).append(true).open(self.folder.path().join("log")).expect("a log");
        let child = self
            .java("kafka.Kafka")
            .arg(self.folder.path().join("server.properties"))
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("java runs");
        self.child = Some(child);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let has_ended =
                self.child.as_mut().and_then(|child| child.try_wait().expect("the process is our child"));
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(has_ended.is_none(), "the broker ended: {}", log());
            assert!(begun.elapsed() < UP_WITHIN, "the broker does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it, as a power failure would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the process is our child");
            child.wait().expect("it ends");
        }
    }

    /// The address for exports to a topic.
    pub(crate) fn address(&self, topic: &str) -> String {
        format!("kafka://127.0.0.1:{}/{topic}", self.port)
    }

    /// The same by TLS, as a user whose password is in this file.
    pub(crate) fn secure_address(&self, topic: &str, password: &Path, mechanism: &str) -> String {
        let (port, user, password) = (self.secure_port, USER.0, password.display());
        format!(
            "kafka+tls://localhost:{port}/{topic}?user={user}&password_file={password}&mechanism={mechanism}"
        )
    }

    /// The certificate of the secure listener, which has signed itself.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("broker.pem")
    }

    /// The size of a topic's files.
    pub(crate) fn bytes_in(&self, topic: &str) -> u64 {
        let mut bytes = 0;
        let begins = format!("{topic}-");
        for folder in fs::read_dir(self.folder.path().join("data")).into_iter().flatten().flatten() {
            if folder.file_name().to_string_lossy().starts_with(&begins) {
                let files = fs::read_dir(folder.path()).into_iter().flatten().flatten();
                let logs = files.filter(|file| file.path().extension().is_some_and(|name| name == "log"));
                bytes += logs.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum::<u64>();
            }
        }
        bytes
    }

    /// All committed messages of these topics, read by Kafka's own client.
    pub(crate) fn read(&self, topics: &[&str]) -> Vec<Message> {
        let mut messages = Vec::new();
        self.read_each(topics, |message| messages.push(message));
        messages
    }

    /// The same, one by one.
    pub(crate) fn read_each(&self, topics: &[&str], mut take: impl FnMut(Message)) {
        let mut command = self.java_command();
        command.arg(Path::new(FOLDER).join("Read.java")).arg(format!("127.0.0.1:{}", self.port)).args(topics);
        let mut reader = command.stdout(Stdio::piped()).spawn().expect("java runs");
        let lines = BufReader::new(reader.stdout.take().expect("a pipe")).lines();
        let message = |line: &str| {
            let mut fields = line.split('\t');
            let mut next = || fields.next().expect("five fields");
            Message {
                topic: next().to_owned(),
                partition: next().parse().expect("a number"),
                offset: next().parse().expect("a number"),
                key: bytes(next()),
                value: bytes(next()),
            }
        };
        lines.for_each(|line| take(message(&line.expect("text"))));
        assert!(reader.wait().expect("it is our child").success(), "the reader failed");
    }

    fn java(&self, class: &str) -> Command {
        let mut command = self.java_command();
        command.arg(class);
        command
    }

    fn java_command(&self) -> Command {
        let mut command = Command::new("java");
        // Quick to start instead of fast in the long run.
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]);
        command.arg(self.jars.join("*")).stdin(Stdio::null());
        command
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes a certificate for `localhost`; returns the settings of the secure listener.
fn secure(folder: &Path) -> String {
    let keytool = |arguments: &[&str]| {
        let store =
            ["-keystore", "broker.p12", "-storetype", "PKCS12", "-storepass", "keystore", "-alias", "b"];
        let output = Command::new("keytool").args(arguments).args(store).current_dir(folder).output();
        let output = output.expect("keytool runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    };
    keytool(&[
        "-genkeypair",
        "-keyalg",
        "EC",
        "-dname",
        "CN=localhost",
        "-ext",
        "san=dns:localhost",
        "-ext",
        "bc=ca:true",
    ]);
    keytool(&["-exportcert", "-rfc", "-file", "broker.pem"]);
    let modules = "org.apache.kafka.common.security";
    let (user, password) = USER;
    let scram = |bits: &str| {
        format!(
            "listener.name.secure.scram-sha-{bits}.sasl.jaas.config={modules}.scram.ScramLoginModule required;\n"
        )
    };
    format!(
        "ssl.keystore.location={}\nssl.keystore.type=PKCS12\nssl.keystore.password=keystore\n\
         listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
         listener.name.secure.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required user_{user}=\"{password}\";\n\
         {}{}",
        folder.join("broker.p12").display(),
        scram("256"),
        scram("512")
    )
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let byte = |place| u8::from_str_radix(&hexadecimal[place..place + 2], 16).expect("hexadecimal");
    (0..hexadecimal.len()).step_by(2).map(byte).collect()
}

/// The folder with the jars, fetched if missing; or why it is not available.
fn jars() -> Result<PathBuf, String> {
    let has =
        |program: &str| Command::new(program).arg("-version").output().is_ok_and(|run| run.status.success());
    if !has("java") {
        return Err("no Java (Debian: default-jdk-headless)".to_owned());
    }
    let beside = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("kafka-4.1.0");
    let folder = std::env::var_os("THALWEG_KAFKA_JARS").map_or_else(beside, PathBuf::from);
    if folder.is_dir() {
        return Ok(folder);
    }
    if !has("mvn") {
        return Err("no jars of Kafka, and no Maven to fetch them (Debian: maven)".to_owned());
    }
    // The first writer renames the folder, so a folder with that name is complete.
    let making = folder.with_extension(std::process::id().to_string());
    let fetched = Command::new("mvn")
        .args(["-q", "-B", "-f"])
        .arg(Path::new(FOLDER).join("pom.xml"))
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", making.display()))
        .output()
        .map_err(|error| error.to_string())?;
    if !fetched.status.success() {
        return Err(format!("Maven cannot fetch Kafka: {}", String::from_utf8_lossy(&fetched.stdout)));
    }
    if fs::rename(&making, &folder).is_err() {
        // Another process was faster.
        let _ = fs::remove_dir_all(&making);
    }
    Ok(folder)
}
