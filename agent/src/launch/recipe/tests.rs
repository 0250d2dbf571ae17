use super::*;

const BASE: &str = r#"
name = "toy"
dialect = "vllm"
command = ["toy", "serve", "${checkpoint}", "--port", "${port}", "--dtype", "float16", "--eager"]
base_url = "http://127.0.0.1:${port}"
notes = ["one"]

[env]
MODE = 1
WHERE = "${recipe_dir}/x"

[vars]
port = 8000
"#;

struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self(dir)
    }

    fn load(&self, overlay: Option<&str>, vars: &[(&str, &str)]) -> Result<Recipe, RecipeError> {
        let vars: Vec<_> = vars.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        let overlay = overlay.map(|name| self.0.path().join(name));
        Recipe::load(&self.0.path().join("toy.toml"), overlay.as_deref(), &vars)
    }
}

fn load(base: &str, vars: &[(&str, &str)]) -> Result<Recipe, RecipeError> {
    Files::new(&[("toy.toml", base)]).load(None, vars)
}

#[test]
fn variables_are_replaced_and_defaults_are_filled_in() {
    let files = Files::new(&[("toy.toml", BASE)]);
    let recipe = files.load(None, &[("checkpoint", "/models/a b")]).unwrap();
    assert_eq!(
        recipe.command,
        ["toy", "serve", "/models/a b", "--port", "8000", "--dtype", "float16", "--eager"]
    );
    assert_eq!(recipe.base_url.port(), 8000);
    assert_eq!(recipe.env["MODE"], "1");
    assert_eq!(recipe.env["WHERE"], format!("{}/x", files.0.path().display()));
    assert!(recipe.env_inherit && recipe.working_dir.is_none() && recipe.ready_path.is_none());
    assert_eq!((recipe.ready_timeout, recipe.grace), (DEFAULT_READY, DEFAULT_GRACE));
    let recipe = files.load(None, &[("checkpoint", "m"), ("port", "8001")]).unwrap();
    assert_eq!(recipe.base_url.port(), 8001);
}

#[test]
fn an_overlay_wins_merges_tables_and_edits_the_command() {
    let overlay = r#"
        name = "toy-cpu"
        command_remove = ["--dtype", "--eager"]
        command_append = ["--dtype", "float32", "--level", "${level}"]
        notes = ["two"]
        env_inherit = false
        [env]
        MODE = "2"
        MORE = "x"
        [stop]
        grace_seconds = 3
        [vars]
        level = "-1"
    "#;
    let files = Files::new(&[("toy.toml", BASE), ("o/cpu.toml", overlay)]);
    let recipe = files.load(Some("o/cpu.toml"), &[("checkpoint", "m")]).unwrap();
    assert_eq!(
        recipe.command,
        ["toy", "serve", "m", "--port", "8000", "--dtype", "float32", "--level", "-1"]
    );
    assert_eq!(
        (recipe.name.as_str(), recipe.dialect.as_str(), recipe.env_inherit),
        ("toy-cpu", "vllm", false)
    );
    assert_eq!(recipe.notes, ["two"]);
    assert_eq!((recipe.env["MODE"].as_str(), recipe.env["MORE"].as_str()), ("2", "x"));
    assert!(recipe.env["WHERE"].ends_with("/x") && !recipe.env["WHERE"].ends_with("/o/x"));
    assert_eq!(recipe.grace, Nanos::from_secs(3));
    assert_ne!(recipe.overlay.unwrap().sha256, recipe.source.sha256);
}

#[test]
fn a_negative_number_is_a_value_of_its_option() {
    let base = BASE.replace("\"--eager\"", "\"--layers\", \"-1\", \"--eager\"");
    let files = Files::new(&[("toy.toml", &base), ("o.toml", "command_remove = [\"--layers\"]")]);
    let recipe = files.load(Some("o.toml"), &[("checkpoint", "m")]).unwrap();
    assert!(recipe.command.ends_with(&["float16".to_owned(), "--eager".to_owned()]), "{:?}", recipe.command);
}

#[test]
fn relative_paths_start_where_they_are_written() {
    let base = BASE.replace("\"toy\", ", "\"./toy\", ") + "\n";
    let base = format!("working_dir = \"w\"\nlog = \"l\"\n{base}");
    let files = Files::new(&[("toy.toml", &base), ("o/cpu.toml", "log = \"l\"")]);
    let recipe = files.load(Some("o/cpu.toml"), &[("checkpoint", "m")]).unwrap();
    let at = |path: &str| files.0.path().join(path);
    assert_eq!(Path::new(&recipe.command[0]), at("./toy"));
    assert_eq!(recipe.working_dir, Some(at("w")));
    assert_eq!(recipe.log_dir, Some(at("o/l")));
}

/// A change of the base, and what the error must say besides the file.
#[test]
fn what_is_wrong_is_named_with_file_and_field() {
    let given = [("checkpoint", "m")];
    let cases: &[(&str, &str, &str)] = &[
        ("name = \"toy\"", "name = \"../toy\"", "name: \"../toy\" cannot name a file"),
        ("name = \"toy\"", "", "name: is missing"),
        ("dialect = \"vllm\"", "", "dialect: is missing"),
        ("notes = [\"one\"]", "nodes = [\"one\"]", "nodes: line 6: unknown field `nodes`"),
        ("notes = [\"one\"]", "notes = \"one\"", "notes: line 6: invalid type"),
        (
            "MODE = 1",
            "MODE = true",
            "env.MODE: line 9: invalid type: boolean `true`, expected text or a whole number",
        ),
        (
            "MODE = 1",
            "MODE = \"${nothing}\"",
            "env.MODE: ${nothing} has no value; give it with --engine-var nothing=",
        ),
        ("port = 8000", "port = 70000", "base_url: "),
        ("port = 8000", "port = \"${other}\"", "vars.port: holds another variable"),
        ("port = 8000", "recipe_dir = 1", "vars.recipe_dir: cannot be a variable"),
        ("[vars]", "[ready]\npath = \"health\"\n[vars]", "ready.path: \"health\" cannot be requested"),
        (
            "[vars]",
            "[ready]\npath = \"/health_generate\"\n[vars]",
            "ready.path: /health_generate makes this engine generate",
        ),
        ("[vars]", "[ready]\ntimeout = 3\n[vars]", "ready.timeout: line 13: unknown field `timeout`"),
        ("[vars]", "[stop]\ngrace_seconds = -3\n[vars]", "stop.grace_seconds: line 13: invalid value"),
        ("[\"toy\", \"serve\",", "[1, \"serve\",", "command: line 4: invalid type"),
        ("${checkpoint}", "${check point}", "command[2]: ${check point} is no variable"),
        ("${checkpoint}", "${checkpoint", "has a ${ without its }"),
        ("name = \"toy\"", "name = \"toy\"\ncommand_append = [\"x\"]", "command_append: is for overlays"),
        ("[vars]", "[vars", "vars: line 12: "),
    ];
    for (from, to, expected) in cases {
        assert!(BASE.contains(from), "{from}");
        let error = load(&BASE.replacen(from, to, 1), &given).unwrap_err().to_string();
        assert!(error.contains("toy.toml") && error.contains(expected), "{to:?} gives: {error}");
    }
}

#[test]
fn values_that_are_missing_or_used_nowhere_are_named() {
    let missing = load(BASE, &[]).unwrap_err();
    assert_eq!(missing.field.as_deref(), Some("command[2]"));
    assert!(missing.problem.contains("--engine-var checkpoint="), "{missing}");
    let unused = load(BASE, &[("checkpoint", "m"), ("chekpoint", "n")]).unwrap_err().to_string();
    assert!(unused.contains("\"chekpoint\"") && unused.contains("${checkpoint}, ${port}"), "{unused}");
    let absent = Recipe::load(Path::new("/no/such.toml"), None, &[]).unwrap_err().to_string();
    assert!(absent.contains("/no/such.toml: cannot be read"), "{absent}");
}

#[test]
fn an_overlay_that_cannot_be_laid_over_is_named_itself() {
    for (overlay, expected) in [
        ("command_remove = [\"--nope\"]", "o.toml: command_remove: \"--nope\" is not in the command"),
        ("nope = 1", "o.toml: nope: line 1: unknown field"),
        ("base_url = \"ftp://x\"", "toy.toml with "),
    ] {
        let files = Files::new(&[("toy.toml", BASE), ("o.toml", overlay)]);
        let error = files.load(Some("o.toml"), &[("checkpoint", "m")]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn sglangs_health_would_generate_and_others_would_not() {
    let with = |dialect: &str| {
        let base = BASE.replace("dialect = \"vllm\"", &format!("dialect = \"{dialect}\""));
        load(&base.replace("[vars]", "[ready]\npath = \"/health\"\n[vars]"), &[("checkpoint", "m")])
    };
    assert!(with("sglang").unwrap_err().problem.contains("generate a token"));
    assert_eq!(with("vllm").unwrap().ready_path.as_deref(), Some("/health"));
}

#[test]
fn the_dialect_is_for_the_caller_to_check() {
    let recipe = load(BASE, &[("checkpoint", "m")]).unwrap();
    assert_eq!(recipe.check_dialect(|name| if name == "vllm" { Ok(1) } else { Err("no") }), Ok(1));
    let error = recipe.check_dialect(|_| Err::<(), _>("is not known")).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("dialect"));
    assert!(error.to_string().contains("toy.toml: dialect: is not known"), "{error}");
}

#[test]
fn its_secrets_are_known_and_its_debug_shows_none() {
    let base = BASE
        .replace("MODE = 1", "HF_TOKEN = \"hf-one\"\nLICENCE = \"lic-two\"")
        .replace("\"--eager\"", "\"--api-key\", \"${api_key}\", \"--admin-key=adm-three\"");
    let base = format!("env_secret = [\"LICENCE\"]\n{base}");
    let recipe = load(&base, &[("checkpoint", "m"), ("api_key", "sk-four")]).unwrap();
    let shown = recipe.scrub().text("hf-one lic-two adm-three sk-four m 8000");
    assert_eq!(shown, "[redacted] [redacted] [redacted] [redacted] m 8000");
    assert!(!format!("{recipe:?}").contains("hf-one"));
}
